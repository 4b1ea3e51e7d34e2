"""`llmgw doctor`, the fleet's half: Temporal, the namespace, workers, the workflow, then every agent and router.

Each step needs the one before it: what is not reached is not asked further. Looks only.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from cli.agents import STATE_PATH, headers, why_not
from cli.asking import POLL_S, Plane
from cli.checkup import Checked, doubt, fine, wrong
from cli.durations import age
from cli.failures import TIMED_OUT, CommandError, meaning
from cli.outside import Session
from llmgw.sentences import names_shown

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    import httpx

    from llmgw.observation import Target
    from workflows.client import Fleet

ASKED_AT_ONCE = 32
ANSWER_LIMIT_S = 5.0
MOST_SKEW_S = 5.0

REGISTER = "temporal operator search-attribute create --name {name} --type {kind}"
SICK_PHASES = ("safe mode", "fenced", "overtaken")
IDLE_PHASES = {
    "paused": "`llmgw resume`, when it is not meant",
    "held": "`llmgw status` says what would be removed",
    "degraded": "`llmgw status` says what is out of order",
    "no catalog": "`llmgw apply FILE`",
    "ending": "it was cancelled: a worker with --fresh begins anew when it has ended",
}
"""Phases in which it is well and does less than it might."""

KINDS = {"FleetPhase": "Keyword", "FleetGeneration": "Int", "FleetRejected": "Bool"}


async def fleet_checks(session: Session) -> list[Checked]:
    """Everything about the fleet, in the order it is shown."""
    try:
        fleet = await session.outside.fleet(session.target)
    except Exception as error:
        if (meant := meaning(error, session.target)) is None:
            raise
        return [_failed("Temporal", meant)]
    found = [fine("Temporal", f"reached, namespace {fleet.client.namespace}")]
    for step in (_attributes, _workers, _workflow):
        try:
            found.append(await step(fleet))
        except Exception as error:
            if (meant := meaning(error, session.target)) is None:
                raise
            if step is _workflow and meant.code == TIMED_OUT:
                found = [_none_answers(check) if check.subject == "workers" else check for check in found]
            return [*found, _failed(STEPS[step.__name__], meant)]
    plane = Plane(fleet)
    from llmgw import views  # late, as above

    try:
        pages = await plane.pages("targets", views.TargetsPage)
    except CommandError as error:
        return [*found, _failed("agents and routers", error)]
    return [*found, *_targets(session, [target for page in pages for target in page.targets])]


STEPS = {"_attributes": "search attributes", "_workers": "workers", "_workflow": "workflow"}


def _failed(subject: str, meant: CommandError) -> Checked:
    what, _, mend = meant.sentences[0].partition(": ")
    return wrong(subject, what, "; ".join(filter(None, (mend, *meant.sentences[1:]))) or "see `llmgw doctor` once more")


async def _attributes(fleet: "Fleet") -> Checked:
    missing = await fleet.missing_search_attributes()
    if missing is None:
        mend = "see that FleetPhase, FleetGeneration and FleetRejected are among the namespace's attributes"
        return doubt("search attributes", "this service does not tell", mend)
    if missing:
        how = "; ".join(REGISTER.format(name=name, kind=KINDS[name]) for name in missing)
        what = f"{', '.join(missing)} not registered: Temporal's web UI cannot list fleets by phase"
        return doubt("search attributes", what, f"{how}; used from the workflow's next run on")
    return fine("search attributes", "registered")


async def _workers(fleet: "Fleet") -> Checked:
    polls = await fleet.workers()
    lately = sorted(identity for identity, age_s in polls.items() if age_s <= POLL_S)
    past = sorted((age_s, identity) for identity, age_s in polls.items() if age_s > POLL_S)
    if not lately:
        last = f"; {past[0][1]} was the last, {age(past[0][0])} ago" if past else ""
        what = f"none has asked for work of fleet {fleet.name} within the last minute{last}"
        return wrong("workers", what, f"llmgw worker --fleet {fleet.name}")
    shown = names_shown([f"{identity} ({age(polls[identity])} ago)" for identity in lately])
    said = f"{shown} asked for work within the last minute"
    if past:
        ended = ", ".join(f"{identity} (last {age(age_s)} ago)" for age_s, identity in past[:4])
        return doubt("workers", f"{said}; no longer: {ended}", "it was ended, or died: start it again if it is missed")
    if len(lately) == 1:
        return doubt("workers", f"one: {said}", "a second one on another host takes over when this one ends")
    return fine("workers", said)


def _none_answers(workers: Checked) -> Checked:
    """Temporal remembers a worker for a minute after its death: only an answer proves one alive."""
    return wrong("workers", f"{workers.what}, and none answers", "it just died, or is frozen: look at its process")


async def _workflow(fleet: "Fleet") -> Checked:
    from llmgw import views  # late, as above

    status = await Plane(fleet).one("status", views.Status)
    phase = str(status.phase).replace("_", " ")
    if phase in SICK_PHASES:
        return wrong("workflow", f"answers, and is in phase {phase}", "see docs/operations.md, and `llmgw status`")
    if phase in IDLE_PHASES:
        return doubt("workflow", f"answers, and is in phase {phase}", IDLE_PHASES[phase])
    return fine("workflow", f"answers, phase {phase}, generation {status.generation}")


# --- agents and routers --------------------------------------------------------------------------------------------


def _targets(session: Session, targets: "list[Target]") -> Iterator[Checked]:
    if not targets:
        yield doubt("agents and routers", "none is declared", "put nodes into the catalog, or `llmgw nodes add URL`")
        return
    with (
        session.outside.agents(headers(session.target.token_file)) as client,
        ThreadPoolExecutor(ASKED_AT_ONCE) as pool,
    ):
        yield from pool.map(lambda target: _target(session, client, target.id, target.url), targets)


def _target(session: Session, client: "httpx.Client", id_: str, url: str) -> Checked:
    """One agent or router: reached, lets us in, and its clock."""
    import httpx  # late, as above

    subject = id_.replace("/", " ", 1)
    try:
        with client.stream("GET", f"{url}{STATE_PATH}", timeout=ANSWER_LIMIT_S) as answer:
            status, date = answer.status_code, answer.headers.get("date")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what, _, mend = why_not(error).partition(". ")
        return wrong(
            subject, f"not reached at {url}: {what}", mend or "is it running, and its port open to this machine?"
        )
    if status in (401, 403):
        return _not_let_in(session, subject)
    if status != 200:
        return wrong(subject, f"answers {status} at {url}", "is it an agent or router of llmgw that answers there?")
    skew_s = _skew_s(date, session.outside.now_s())
    if skew_s is not None and abs(skew_s) > MOST_SKEW_S:
        what = f"reached; its clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
        return doubt(subject, what, "nothing depends on it but logs and metrics: set both by NTP")
    return fine(subject, f"reached at {url}")


def _not_let_in(session: Session, subject: str) -> Checked:
    if session.target.token_file is None:
        return doubt(subject, "reached; it wants a token", "give --token-file, to see whether ours is known there")
    return wrong(subject, "it does not know our token", "put the first line of --token-file into its own token file")


def _skew_s(date: str | None, now_s: float) -> float | None:
    """How far ahead the clock is that wrote an HTTP date; whole seconds, so two are within its error."""
    try:
        written = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return written.replace(tzinfo=written.tzinfo or UTC).timestamp() - now_s
