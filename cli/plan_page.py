"""A plan as a tree: what changes in the catalog, then model by model what is done, and what cannot be foreseen."""

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from cli.tables import word
from cli.verdicts import held_because
from llmgw.foresight import Foresight, ModelOutlook, Step, StepKind
from llmgw.sentences import counted, names_shown

CONFIRMED = " --allow-removals"

SAID: Mapping[StepKind, tuple[str, str]] = {
    StepKind.START: ("start", "green"),
    StepKind.STOP: ("stop", "red"),
    StepKind.MOVE: ("move", "yellow"),
    StepKind.REPLACE: ("replace", "yellow"),
    StepKind.EVICT: ("evict", "red"),
}
"""Each kind of step: its word, and its colour."""


def plan_page(found: Foresight, command: str) -> RenderableType:
    """`command` puts the planned catalog in force."""
    if found.judgement not in ("accepted", "unchanged", "held"):
        text = found.text.removeprefix(f"{found.judgement}: ")
        return Group(
            Text.assemble("It would be ", word(found.judgement), f": {text}"), *_items("Problems", found.problems)
        )
    if is_held := found.judgement == "held":
        command += CONFIRMED
    return Group(
        *((Text.assemble("It would be ", word("held"), f": {held_because(found.text)}."), Text()) if is_held else ()),
        _headline(found),
        *_items("In the catalog", found.differences),
        *_outlooks(found),
        *_items("Without any endpoint for a while", _downs(found)),
        *_items("Weights to fetch", (f"{f.source} on {f.node} ({', '.join(f.models)})" for f in found.fetches)),
        *_items("Under way already", found.under_way),
        *_items("Not foreseen", found.unforeseen),
        Text(),
        Text.assemble(
            ("If it is meant, as" if is_held else "As", "dim"),
            (" it is shown here: ", "dim"),
            f"{command} --plan {found.hash}",
        ),
    )


WHY: Mapping[str, str] = {
    "no_place": "for want of a place",
    "failed": "given up after failed attempts",
    "backing_off": "until their next attempt",
    "hold": "until the plane acts again",
    "rolled_back": "on their last good version",
}
"""By the code of what a model waits for; another one is told in the tree alone."""
BY_CHOICE = ("canary",)
"""Codes of models that are as far as their catalog wants them for now."""


def _headline(found: Foresight) -> Text:
    return Text(" ").join([_done(found), *_would_wait(found)])


def _would_wait(found: Foresight) -> Iterable[Text]:
    """Models that do not get there by themselves, those with one reason together."""
    short = [o for o in found.models if o.waits and o.waits_code not in BY_CHOICE]
    for code in dict.fromkeys(outlook.waits_code for outlook in short):
        names = [outlook.model for outlook in short if outlook.waits_code == code]
        why = f" {WHY[code]}" if code in WHY else ""
        yield Text.assemble((f"{counted(len(names), 'model')} would wait", "yellow"), f"{why}: {names_shown(names)}.")


def _done(found: Foresight) -> Text:
    if found.is_empty:
        return Text("Nothing would be started or stopped.", "bold")
    counts = (Text.assemble(f"{number} to ", SAID[kind]) for kind in StepKind if (number := found.counts.get(kind, 0)))
    return Text.assemble(("What it leads to: ", "bold"), Text(", ").join(counts), ".")


def _items(title: str, texts: Iterable[str]) -> Iterable[RenderableType]:
    """A section, left out when there is nothing in it."""
    tree = Tree(Text(title, "bold"), guide_style="dim")
    for text in texts:
        tree.add(Text(text))
    return (Text(), tree) if tree.children else ()


def _outlooks(found: Foresight) -> Iterable[RenderableType]:
    tree = Tree(Text("Models", "bold"), guide_style="dim")
    for outlook in found.models:
        branch = tree.add(_outlook(outlook))
        for step in outlook.steps:
            branch.add(_step(step))
        if outlook.waits:
            branch.add(Text.assemble(("waits", "yellow"), f": {outlook.waits}"))
    if not tree.children:
        return ()
    if found.unchanged:
        tree.add(Text(f"{counted(found.unchanged, 'other model')} as before", "dim"))
    return (Text(), tree)


def _outlook(outlook: ModelOutlook) -> Text:
    head = Text.assemble((outlook.model, "bold"))
    if outlook.leaves:
        return head.append(f"  leaves; {counted(outlook.endpoints_before, 'endpoint')} withdrawn at once")
    text = f"  {outlook.endpoints_before} → {counted(outlook.endpoints_after, 'endpoint')}"
    if outlook.endpoints_after < outlook.wanted:
        text += f" of {outlook.wanted} wanted"
    if outlook.former_after:
        text += f", {outlook.former_after} of them still as before the edit"
    if 0 < outlook.least < outlook.endpoints_before:
        text += f", never fewer than {outlook.least}"
    return head.append(text)


def _step(step: Step) -> Text:
    said, style = SAID[step.kind]
    devices = f", {counted(len(step.devices), 'device')}" if step.devices else ""
    match step.kind:
        case StepKind.START:
            what = f" {step.replica} on {step.node} ({step.profile}{devices})"
        case StepKind.STOP | StepKind.EVICT:
            what = f" {step.replica} on {step.node}"
        case StepKind.REPLACE:
            what = f" {step.replaces} by {step.replica} on {step.node} ({step.profile}{devices})"
        case StepKind.MOVE:
            what = f" {step.replaces} from {step.from_node} to {step.node} as {step.replica} ({step.profile}{devices})"
    return Text.assemble((f"{step.order}. ", "dim"), (said, style), what, (f": {step.why}" if step.why else "", "dim"))


def _downs(found: Foresight) -> Iterable[str]:
    for outlook in found.models:
        if outlook.down_starts:
            starts = counted(outlook.down_starts, "engine start")
            yield f"{outlook.model}: until its old engine has stopped, and for {starts}"
