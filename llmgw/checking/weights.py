"""Rules about weights: sources nobody can fetch, engines left without any, and what an engine cannot be told."""

from collections.abc import Iterator

from llmgw.checking.launches import Launch, flag_of, launches
from llmgw.checking.raw import EACH, text_list, texts
from llmgw.checking.sent import Sent
from llmgw.engines import EngineRow
from llmgw.problems import Finding, Path, Severity
from llmgw.weights import HOW, hub_source, unusable_source


def weights(sent: Sent) -> Iterator[Finding]:
    """Sources that cannot be, and profiles whose engine and weights do not go together."""
    pattern = ("models", EACH)
    for at, source in (*texts(sent.raw, *pattern, "weights"), *texts(sent.raw, *pattern, "profiles", EACH, "weights")):
        if (reason := unusable_source(source)) is not None:
            yield Finding(at, f"cannot be a source of weights: {reason}", HOW)
    for launch in launches(sent.raw):
        if launch.row is None:
            continue
        if launch.weights is None:
            yield from _absent(launch, launch.row)
        else:
            yield from _given_twice(launch, launch.row, launch.weights)
            yield from _doubtful(launch, launch.row, launch.weights)


def _absent(launch: Launch, row: EngineRow) -> Iterator[Finding]:
    named = {flag_of(item, row) for item in launch.args} & set(row.weights.own_flags)
    if row.weights.required and not named:
        yield Finding(
            launch.at,
            f"{row.name} has no weights to load",
            f"add `weights` to the model or profile (or name them in args: {', '.join(row.weights.own_flags)})",
        )


def _given_twice(launch: Launch, row: EngineRow, source: str) -> Iterator[Finding]:
    hub, given = hub_source(source), set(row.weights.own_flags)
    if hub is not None and hub.revision and row.weights.revision_flag:
        given.add(row.weights.revision_flag)
    for index, item in text_list(launch.profile.get("args")):
        if (flag := flag_of(item, row)) in given:
            yield Finding((*launch.at, "args", index), f"{flag} is already given by `weights`", "keep one of the two")


def _doubtful(launch: Launch, row: EngineRow, source: str) -> Iterator[Finding]:
    rule, hub = row.weights, hub_source(source)
    at: Path = (*launch.at, "weights") if "weights" in launch.profile else launch.at
    if rule.suffix and not source.partition("@")[0].endswith(rule.suffix):
        yield Finding(
            at,
            f"{row.name} loads one {rule.suffix} file, and the weights do not name one",
            f"name the file: hf://org/repo/model{rule.suffix}",
            Severity.WARNING,
        )
    if hub is not None and hub.revision and rule.required and not rule.revision_flag:
        yield Finding(
            at,
            f"{row.name} cannot be told the revision {hub.revision}: it loads the newest",
            "leave the revision out, or put the file on the nodes and write file:///path",
            Severity.WARNING,
        )
