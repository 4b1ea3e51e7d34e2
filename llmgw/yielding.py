"""What sleeps early: an idle model that only a wish keeps up yields its place to one of its priority that lacks any.

Only after `min_residence_s` with its place and its wish, and only where that makes room. Until routers have told that
it is idle, they are asked to tell it sooner than for its own idle time. What is of a lower priority is displaced
(`llmgw.placing.displace`), idle or not, but what serves only where nothing that is cheaper makes room: what is about to
stop anyway, what sleeps, what is idle. What an operator scaled, or a minimum keeps up, never yields.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from llmgw import demand, sleeping, waking
from llmgw.catalog import Model, Profile
from llmgw.draft import Draft
from llmgw.ground import Ground, Spot
from llmgw.ids import NodeId
from llmgw.world import Assignment, StopCause, StopIntent, World

SOONEST_S = 1.0
"""No router is asked to call an endpoint idle sooner."""


def make_room(draft: Draft, ground: Ground, model: Model, profiles: Sequence[Profile]) -> None:
    """For `model`, which lacks a place: end the wishes of idle models whose places together would do, on one node."""
    if not (candidates := _candidates(draft, model)):
        return
    for held in _by_node(candidates):
        if not any(ground.makes_room(model, profile, held) for profile in profiles):
            continue
        draft.watched.update(a.model for a in held)
        if _yield(draft, ground, model, profiles, held):
            return


def instead(draft: Draft, ground: Ground, model: Model, profile: Profile, spot: Spot) -> Spot | None:
    """For `model`, a place that costs less than `spot`, which displaces what serves; None where there is none. Who can
    yield, yields; whoever has the place now goes with the coming of the model's replica."""
    gone = [draft.assignments[replica] for replica in spot.displaced]
    if not any(demand.is_serving(draft, a) and not _is_surplus(a.stop) for a in gone):
        return None
    with ground.nobody_displaced(spot):
        held = _cheaper(draft, ground, model, profile, gone)
    return ground.instead(model, profile, spot, held) if held else None


def _cheaper(
    draft: Draft, ground: Ground, model: Model, profile: Profile, gone: Sequence[Assignment]
) -> Sequence[Assignment]:
    """What makes room on one node in place of `gone`: by being about to stop anyway, else by yielding."""
    for held in _by_node([a for a in draft.in_question() if _is_surplus(a.stop) and a not in gone]):
        if ground.makes_room(model, profile, held):
            return _fewest(ground, model, [profile], held)
    for held in _by_node([a for a in _candidates(draft, model) if a not in gone]):
        if yields := _yield(draft, ground, model, [profile], held):
            return yields
    return ()


def _is_surplus(stop: StopIntent | None) -> bool:
    """Whether it stops anyway, and nobody waits for its place."""
    return stop is not None and stop.cause is StopCause.SURPLUS and not stop.commanded and stop.by is None


def _yield(
    draft: Draft, ground: Ground, model: Model, profiles: Sequence[Profile], held: Sequence[Assignment]
) -> Sequence[Assignment]:
    """Of what is held on one node, let yield what is idle and asleep, if that is enough; those that do."""
    idle = demand.idle(draft.world)
    able = [a for a in held if sleeping.sleeps(a) or (a.replica in idle and _has_resided(draft, a))]
    if not any(ground.makes_room(model, profile, able) for profile in profiles):
        return ()
    yields = _fewest(ground, model, profiles, able)
    _sleep(draft, model, yields)
    return yields


def watch_s(draft: Draft, model: Model) -> float | None:
    """How long routers wait until they call the model idle; None: nobody has to watch."""
    idle_s = waking.idle_after_s(draft.world, model, draft.now_s)
    if idle_s is None or model.name not in draft.watched:
        return idle_s
    return min(idle_s, max(SOONEST_S, _min_residence_s(draft.world)))


def _candidates(draft: Draft, model: Model) -> list[Assignment]:
    """Replicas of other models of no higher priority that nothing but a wish to wake keeps up, and all that sleep."""
    others = (draft.models.get(name) for name in draft.world.wishes.wakes if name != model.name)
    names = {
        other.name
        for other in others
        if other is not None
        and other.priority <= model.priority
        and waking.idle_after_s(draft.world, other, draft.now_s) is not None
    }
    found = [a for name in names for a in draft.of_model(name) if a.stop is None and not a.unreadable]
    asleep = [draft.assignments[id_] for id_ in draft.sleepers if id_ in draft.assignments]
    found += [a for a in asleep if a.model not in names and a.model != model.name and sleeping.sleeps(a)]
    return sorted(found, key=lambda a: a.replica)


def _by_node(assignments: Sequence[Assignment]) -> list[list[Assignment]]:
    """Those of each node, by its id."""
    groups: defaultdict[NodeId, list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        for part in assignment.parts:
            groups[part.node].append(assignment)
    return [groups[node] for node in sorted(groups)]


def _has_resided(draft: Draft, assignment: Assignment) -> bool:
    since_s = max(assignment.created_s, draft.world.wishes.wakes.get(assignment.model, 0.0))
    until_s = since_s + _min_residence_s(draft.world)
    draft.wake(until_s)
    return draft.now_s >= until_s


def _min_residence_s(world: World) -> float:
    return 0.0 if world.catalog is None else world.catalog.policy.min_residence_s


def _fewest(
    ground: Ground, model: Model, profiles: Sequence[Profile], yields: Sequence[Assignment]
) -> list[Assignment]:
    """Of those that yield as few as will do; what is awake stays before what sleeps, and who came last."""
    kept = list(yields)
    for assignment in sorted(yields, key=lambda a: (sleeping.sleeps(a), -a.created_s, a.replica)):
        fewer = [a for a in kept if a is not assignment]
        if fewer and any(ground.makes_room(model, profile, fewer) for profile in profiles):
            kept = fewer
    return kept


def _sleep(draft: Draft, model: Model, yields: Sequence[Assignment]) -> None:
    gone = {assignment.model for assignment in yields}
    wishes = draft.world.wishes
    wakes = {name: since_s for name, since_s in wishes.wakes.items() if name not in gone}
    draft.world = replace(draft.world, wishes=replace(wishes, wakes=wakes))
    draft.more = True
    for name in sorted(gone):
        draft.event(f"model/{name}", f"is idle and yields its place to {model.name}")
    for assignment in yields:  # at once: asleep it would keep its place, and who waits for it knows that it goes
        draft.want_stop(assignment, StopCause.SURPLUS, f"is idle and yields its place to {model.name}")
