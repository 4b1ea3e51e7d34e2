"""`llmgw apply`: check a catalog here, put it in force, and wait until the fleet is where it wants it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli.asking import Plane, ask
from cli.catalogs import File, checked_and_warned
from cli.durations import METAVAR, age, seconds
from cli.failures import INTERRUPTED, OK, REFUSED, TIMED_OUT, CommandError
from cli.output import AsJson, AsYaml, Form, console, form_of, text_of, warn
from cli.outside import Session
from cli.verdicts import held_text, is_taken, print_verdict

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from cli.progress import Progress
    from llmgw.catalog import Catalog
    from llmgw.plan import Verdict

LOOK_S = 0.3
PATIENCE_S = 5.0
"""So long has nothing to be under way before it is said that nothing more comes: a node may just be coming up."""


Wait = Annotated[bool, typer.Option(help="Wait until everything wanted is ready and published.")]
Timeout = Annotated[
    float, typer.Option(parser=seconds, metavar=METAVAR, show_default="10m", help="Wait this long at most.")
]
AllowRemovals = Annotated[bool, typer.Option("--allow-removals", help="Confirm that many running models leave.")]
Plan = Annotated[
    str,
    typer.Option(
        "--plan",
        metavar="HASH",
        show_default=False,
        help="Only if the fleet and the catalog are still those that this plan was made for.",
    ),
]


def apply(
    context: typer.Context,
    file: File,
    wait: Wait = True,
    timeout: Timeout = 600.0,
    allow_removals: AllowRemovals = False,
    plan: Plan = "",
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Put a catalog in force, and wait until the fleet is where it wants it.

    It is checked here first, then accepted whole or not at all. One that removes many running models is held, and
    sending it again is no confirmation here: --allow-removals is. Ends with 0 when it is in force (with --no-wait: when
    it was accepted), 1 when it is refused, held, or nothing is under way any more and it is not all there (no place,
    given up, rolled back: it says so within seconds), 4 when the time is over: then it stays in force, and the fleet
    goes on.
    """
    raw, catalog, told = checked_and_warned(file)
    put_in_force(context.obj, raw, catalog, form_of(as_json, as_yaml), wait, timeout, allow_removals, plan, told)


def put_in_force(
    session: Session,
    raw: dict[str, Any],
    catalog: "Catalog",
    form: Form,
    wait: bool,
    timeout: float,
    allow_removals: bool,
    plan: str,
    told: frozenset[str] = frozenset(),
) -> None:
    """Send a checked catalog, tell the verdict and, with `wait`, how the fleet gets there. Ends the command. `told`:
    warnings that were told already."""
    sent = sendable({**raw, "allow_removals": True} if allow_removals else raw, catalog)
    verdict = ask(session, lambda plane: _judged(plane, sent, catalog, plan, allow_removals))
    if form is Form.PAGE:
        print_verdict(verdict, told)
    if not is_taken(verdict) or not wait:
        _end(verdict, form, OK if is_taken(verdict) else REFUSED, "")
    try:
        code, text = ask(session, lambda plane: _converged(session, plane, verdict, timeout, form))
    except KeyboardInterrupt:
        code, text = INTERRUPTED, "no longer waiting; the catalog stays in force"
    _end(verdict, form, code, text)


async def _judged(plane: Plane, sent: dict[str, Any], catalog: "Catalog", plan: str, allow_removals: bool) -> "Verdict":
    """The fleet's verdict. A catalog that is held is not sent again unless it says that removals are meant: the fleet
    takes a repetition for a confirmation, and a job that only tries again would confirm what nobody has looked at."""
    if not (allow_removals or catalog.allow_removals):
        from llmgw import views  # late, as above
        from llmgw.catalog import catalog_digest

        held = (await plane.one("status", views.Status)).held
        if held is not None and held.digest == catalog_digest(catalog):
            raise CommandError(
                REFUSED, f"held for {age(held.age_s)} already: {held_text(held.text)}", "nothing was sent"
            )
    return await plane.apply(sent, plan)


def sendable(raw: dict[str, Any], catalog: "Catalog") -> dict[str, Any]:
    """Plain while it is small, so that Temporal's web UI shows it; compressed beyond what a payload may be."""
    from llmgw.canonical import canonical_json  # late, for a quick `llmgw --help`
    from llmgw.catalog import MAX_PLAIN_BYTES, catalog_bytes
    from llmgw.catalog_input import compress_catalog

    size = max(len(canonical_json(raw)), catalog_bytes(catalog))
    return raw if size <= MAX_PLAIN_BYTES else dict(compress_catalog(raw))


def _end(verdict: "Verdict", form: Form, code: int, text: str) -> None:
    if form is not Form.PAGE:
        told = {"verdict": verdict.model_dump(mode="json"), "there": code == OK and bool(text), "text": text}
        print(text_of(told, form))
    elif text:
        if code == OK:
            print(text)
        else:
            warn(text)
    raise typer.Exit(code)


async def _converged(session: Session, plane: Plane, verdict: "Verdict", limit_s: float, form: Form) -> tuple[int, str]:
    """The exit code and its reason, once the fleet is there, is stuck, or the time is over."""
    from cli.listings import model_rows  # late, as above
    from cli.progress import Arrived, Going, Halted, Stuck, progress
    from llmgw import views

    outside = session.outside
    start_s = outside.monotonic_s()
    halted_s: float | None = None
    with _following(form) as follow:
        while True:
            status = await plane.one("status", views.Status)
            found = progress(status, await model_rows(plane), verdict)
            waited_s = outside.monotonic_s() - start_s
            match found:
                case Arrived(text):
                    return OK, f"{text} after {waited_s:.1f} s"
                case Stuck(text):
                    return REFUSED, text
                case Halted(text):
                    halted_s = waited_s if halted_s is None else halted_s
                    if waited_s - halted_s >= min(PATIENCE_S, limit_s):
                        return REFUSED, f"{text}; the catalog stays in force"
                case Going(text):
                    halted_s = None
                    if waited_s >= limit_s:
                        more = "the fleet goes on; `llmgw status --watch` shows how"
                        return TIMED_OUT, f"not there after {limit_s:g} s: {text}; {more}"
            if not isinstance(found, Halted):  # what it waits for is told once: at the end, if it stays so
                follow(found, waited_s)
            await outside.pause(LOOK_S)


@contextmanager
def _following(form: Form) -> Iterator[Callable[["Progress", float], None]]:
    """A way to tell how it goes: in place at a terminal, a line per change elsewhere, nothing for programs."""
    out = console()
    if form is not Form.PAGE:
        yield lambda *_: None
    elif out.is_terminal:
        with Live(console=out, transient=True, auto_refresh=False) as live:
            yield lambda found, waited_s: live.update(_page(found, waited_s), refresh=True)
    else:
        yield _changes()


def _changes() -> Callable[["Progress", float], None]:
    """A line for each model whose progress is another than it was; one that lacks nothing any more says so once."""
    from cli.progress import Going, Halted, lines  # late, as above

    last: dict[str, str] = {}

    def follow(found: "Progress", waited_s: float) -> None:
        nonlocal last
        now = lines(found) if isinstance(found, Going | Halted) else {}
        there = {name: "ready" for name in last.keys() - now.keys() if name}
        for name, text in {**there, **now}.items():
            if last.get(name) != text:
                print(f"{age(waited_s):>4}  {name}{': ' if name else ''}{text}", flush=True)
        last = now

    return follow


def _page(found: "Progress", waited_s: float) -> RenderableType:
    from cli.listings import MODELS  # late, as above
    from cli.progress import Going, Halted
    from cli.tables import Rows

    head = Text.assemble((f"{age(waited_s)}  ", "dim"), found.text)
    lacking = found.lacking if isinstance(found, Going | Halted) else ()
    return Group(head, Text(), Rows(MODELS, lacking, "")) if lacking else head
