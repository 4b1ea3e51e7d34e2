"""From a wish to stop to the command, in one order for every engine: withdrawn from every live router and
acknowledged, nothing in flight or the drain limit over, then the Stop. Once commanded there is no way back."""

from dataclasses import replace

from llmgw import members
from llmgw.draft import Draft
from llmgw.ids import ReplicaId, RouterId
from llmgw.router_kinds import kind_of
from llmgw.world import Assignment, RouterFacts, SilenceLevel, StopCause, StopIntent, World

UNACKNOWLEDGED_LIMIT_S = 30.0
"""So much longer than the drain limit is waited for a router that never acknowledges a withdrawal."""
ABANDON_AFTER_S = 600.0
"""An ending fleet waits so long for a node once it is lost."""


def live_routers(world: World) -> dict[RouterId, RouterFacts]:
    """Routers whose acknowledgement counts: those that carry traffic and are not silent."""
    return {
        id_: world.routers.get(id_, RouterFacts())
        for id_, router in members.routers(world).items()
        if kind_of(router.kind).carries_traffic and not _is_silent(world, id_)
    }


def _is_silent(world: World, router: RouterId) -> bool:
    silence = world.silence.get(f"router/{router}")
    return silence is not None and silence.level is not SilenceLevel.HEARD


def told_revision(facts: RouterFacts) -> int:
    """The revision that a router is known to serve; -1 where it says that it holds something else than it acknowledged:
    one that came back with an older table may pick again what that names."""
    return facts.acked_revision if facts.held_digest == facts.acked_digest else -1


def command(draft: Draft, published: frozenset[ReplicaId], revision: int) -> None:
    """Command the stops whose time has come. `published` and `revision`: the table after this pass."""
    routers = live_routers(draft.world)
    before = len(draft.assignments), draft.commanded
    for assignment in draft.in_question():
        stop = assignment.stop
        if stop is None or stop.commanded or assignment.replica in published:
            continue
        if _was_never_told(draft, assignment):
            draft.gone(assignment, f"is not started: {stop.text}")
            continue
        if stop.withdrawn_at < 0:
            stop = replace(stop, withdrawn_at=revision)
            draft.put(replace(assignment, stop=stop))
        reason, until_s = (draft.hold, None) if draft.hold else _why_not_yet(draft, assignment, stop, routers)
        if reason:
            draft.wait(f"replica/{assignment.replica}", "draining", reason, until_s)
        else:
            draft.command(assignment, stop)
    frees = before != (len(draft.assignments), draft.commanded)
    if frees and (draft.world.refused or any(subject.startswith("model/") for subject in draft.waits)):
        draft.more = True  # what is given up or free may be what a model, or a refused start, waits for


def _was_never_told(draft: Draft, assignment: Assignment) -> bool:
    """No batch ever named it, so nothing of it can live: there is nothing to stop."""
    view = draft.survey.of(assignment.node)
    shown = view is not None and assignment.replica in view.rows
    return assignment.replica not in draft.world.sent and not assignment.adopted and not shown


def _why_not_yet(
    draft: Draft, assignment: Assignment, stop: StopIntent, routers: dict[RouterId, RouterFacts]
) -> tuple[str, float | None]:
    """What the stop waits for and until when at the latest; empty when it may be commanded."""
    now_s, limit_s = draft.now_s, drain_limit_s(draft.world, assignment)
    view = draft.survey.of(assignment.node)
    if stop.cause is StopCause.REPLACED and view is not None and view.is_silent:
        return "", None  # withdrawn since it fell silent; it is told when it is back
    grace_s = 0.0 if _runs_nowhere(draft, assignment) else _grace_s(draft.world, stop)
    if now_s < stop.since_s + grace_s:
        text = f"its model left; it is stopped {grace_s:g} s after, unless it is taken back"
        return text, stop.since_s + grace_s
    until_s = stop.since_s + limit_s + UNACKNOWLEDGED_LIMIT_S
    behind = sorted(id_ for id_, facts in routers.items() if told_revision(facts) < stop.withdrawn_at)
    if behind and now_s < until_s and _was_ready(draft, assignment):
        return f"waits until {', '.join(behind)} has taken it out of its table", until_s
    until_s = stop.since_s + limit_s
    busy = sorted(id_ for id_, facts in routers.items() if assignment.replica in facts.draining)
    if busy and now_s < until_s:
        return f"requests are in flight at {', '.join(busy)}; at most {limit_s:g} s", until_s
    return "", None


def _runs_nowhere(draft: Draft, assignment: Assignment) -> bool:
    """Its node refused the start and shows nothing of it: there is no engine to keep for being taken back."""
    view = draft.survey.of(assignment.node)
    heard = view is not None and view.judges and assignment.replica not in view.rows
    return heard and assignment.replica in draft.world.refused


def _was_ready(draft: Draft, assignment: Assignment) -> bool:
    """A replica that never was ready never was published, so nobody has to withdraw it."""
    view = draft.survey.of(assignment.node)
    row = None if view is None else view.rows.get(assignment.replica)
    return row is None or row.was_ready


def drain_limit_s(world: World, assignment: Assignment) -> float:
    """The profile's limit, else the policy's."""
    if world.catalog is None:
        return 120.0
    model = world.catalog.model(assignment.model)
    profiles = () if model is None else model.profiles
    own = next((p.drain_limit_s for p in profiles if p.name == assignment.profile), None)
    return world.catalog.policy.drain_limit_s if own is None else own


def drain_left_s(world: World, assignment: Assignment | None) -> float:
    """What is left of the drain limit when the stop was commanded: so long its engine may go on with requests that no
    router knows of. Nothing is left for what failed, or what another one has replaced."""
    stop = None if assignment is None else assignment.stop
    if assignment is None or stop is None or stop.cause in (StopCause.FAILED, StopCause.REPLACED):
        return 0.0
    waited_s = 0.0 if stop.commanded_s is None else stop.commanded_s - stop.since_s
    return max(0.0, drain_limit_s(world, assignment) - waited_s)


def _grace_s(world: World, stop: StopIntent) -> float:
    if stop.cause is not StopCause.REMOVED or world.catalog is None:
        return 0.0
    return world.catalog.policy.removal_grace_s


def abandon_lost(draft: Draft) -> None:
    """An ending fleet gives up what its lost nodes hold after a while; they are settled if they ever return."""
    if not draft.world.ending:
        return
    for assignment in draft.in_question():
        silence = draft.world.silence.get(f"node/{assignment.node}")
        view = draft.survey.of(assignment.node)
        if view is None or silence is None or not view.is_silent:
            continue
        lost_after_s = draft.world.catalog.policy.lost_after_s if draft.world.catalog is not None else 60.0
        until_s = silence.since_s + lost_after_s + ABANDON_AFTER_S
        if draft.now_s >= until_s:
            draft.gone(assignment, f"abandoned on {assignment.node}, which is lost")
        else:
            draft.wait(f"replica/{assignment.replica}", "lost", f"{assignment.node} is silent", until_s)


def force_after_s(draft: Draft, assignment: Assignment) -> float:
    """How long a commanded stop may take before it is repeated with force."""
    spec = draft.specs.get(assignment.spec)
    if spec is None:
        return drain_left_s(draft.world, assignment) + 180.0
    limits_s = spec.stop.term_limit_s + spec.stop.second_term_limit_s + spec.stop.kill_limit_s
    return drain_left_s(draft.world, assignment) + 3 * limits_s + 30.0
