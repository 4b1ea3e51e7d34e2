"""Sleep and waking: what clients ask for becomes a recorded wish, what nobody uses any more loses it.

A wish keeps one replica above the minimum. It comes from a request that a live router holds, or from an operator, and
ends when the model was idle for its idle time at every live router, or when its attempts are spent and nobody asks.
A model whose attempts are spent rests before a client can wake it again. Without a live router everything counts as
in use. An order to scale stands above both: clients neither wake nor end it.
"""

from collections.abc import Mapping
from dataclasses import replace

from llmgw import attempts, demand, stopping
from llmgw.catalog import Catalog, Model
from llmgw.draft import Draft
from llmgw.ids import ModelName, ReplicaId
from llmgw.launches import fingerprints
from llmgw.sentences import lasting
from llmgw.world import Failure, Wishes, World

REST_S = 300.0
"""After its last attempt a model cannot be woken by clients for so long."""
OVERDUE = 2.0
"""A wish to wake is overdue after so many times the limits of a start and a stop."""


def settle(draft: Draft) -> None:
    """Record new wishes to wake and end those that are over; the rest of the pass decides on the outcome."""
    world = draft.world
    if world.catalog is None or world.ending or draft.hold:
        return
    asked = _asked(world)
    wakes = dict(world.wishes.wakes)
    for name in [name for name in wakes if name in world.failures]:
        if (model := draft.models.get(name)) is not None and (spent := last_attempt(world, model)) is not None:
            _give_up(draft, model, wakes, spent)
    for name in sorted(asked):
        if (model := draft.models.get(name)) is not None and name not in wakes and may_wake(world, model, draft.now_s):
            wakes[name] = draft.now_s
            draft.event(f"model/{name}", "is asked for and wakes up")
    for name in _idle_models(draft, wakes):
        if name not in asked:
            del wakes[name]
            draft.event(f"model/{name}", f"was not used for {draft.models[name].idle_timeout_s:g} s and goes to sleep")
    if wakes != world.wishes.wakes:
        draft.world = replace(world, wishes=replace(world.wishes, wakes=wakes))


def tell_overdue(draft: Draft) -> None:
    """An alarm for a wish to wake that was not met within twice the limits of a start and a stop (DESIGN §4)."""
    catalog = draft.world.catalog
    if catalog is None or draft.world.ending:
        return
    for name in sorted(draft.world.wishes.wakes):
        model = draft.models.get(name)
        if model is None or (draft.is_steady(name) and draft.of_model(name)):
            continue
        since_s = demand.asked_s(draft.world, model, draft.now_s)
        if not since_s or any(demand.is_serving(draft, a) for a in draft.of_model(name)):
            continue
        ready_s = [f.at_s for f in draft.failures.get(name, ()) if f.was_ready]
        limit_s = OVERDUE * max(p.start_limit_s + p.stop_limit_s for p in model.profiles)
        due_s = max([since_s, *ready_s]) + limit_s
        if draft.now_s < due_s:
            draft.wake(due_s)
            continue
        text = f"was asked for and is not ready after {lasting(limit_s)}, twice its start and stop limits"
        if f"wake/{name}" not in draft.world.waiting:
            draft.event(f"model/{name}", text)
        draft.wait(f"wake/{name}", "wake_overdue", text)


def kept_awake(world: World, new: Catalog, at_s: float) -> Wishes:
    """The wishes when `new` comes into force: a model that runs and may sleep from now on is as if woken, so that it
    is seen idle for its idle time before it stops."""
    before = {} if world.catalog is None else {m.name: m for m in world.catalog.models}
    running = {a.model for a in world.assignments.values() if a.stop is None}
    wakes = {
        model.name: at_s
        for model in new.models
        if model.idle_timeout_s is not None
        and model.replicas.min == 0 < model.replicas.max
        and model.name in running
        and (old := before.get(model.name)) is not None
        and old.replicas.min > 0
        and not _is_pinned(world, model, at_s)
    }
    return replace(world.wishes, wakes={**wakes, **world.wishes.wakes}) if wakes else world.wishes


def may_wake(world: World, model: Model, now_s: float) -> bool:
    """Whether a client's request starts it: nothing runs by wish, no order keeps it down, and it is not resting."""
    if model.replicas.max == 0 or _is_pinned(world, model, now_s) or demand.desired(world, model, now_s) > 0:
        return False
    return (until_s := rests_until_s(world, model)) is None or now_s >= until_s


def rests_until_s(world: World, model: Model) -> float | None:
    """When a model whose attempts are spent may be tried again for a client."""
    spent = last_attempt(world, model)
    return None if spent is None else spent.at_s + REST_S


def last_attempt(world: World, model: Model) -> Failure | None:
    """The newest failure of a model of which every profile was given up; None while one may be tried."""
    known = world.failures.get(model.name)
    if not known or world.catalog is None:
        return None
    failures = attempts.counted(world, model, known)
    limit = world.catalog.policy.max_attempts
    lost = [attempts.given_up(failures, print_, limit) for print_ in fingerprints(world.catalog).of[model.name]]
    found = [failure for failure in lost if failure is not None]
    return max(found, key=lambda f: f.at_s) if len(found) == len(lost) else None


def idle_after_s(world: World, model: Model, now_s: float) -> float | None:
    """What routers have to watch for: None while use would change nothing."""
    if model.idle_timeout_s is None or _is_pinned(world, model, now_s):
        return None
    return model.idle_timeout_s if demand.desired(world, model, now_s) > model.replicas.min else None


def _is_pinned(world: World, model: Model, now_s: float) -> bool:
    scale = world.wishes.scales.get(model.name)
    return scale is not None and (scale.until_s is None or now_s < scale.until_s)


def _asked(world: World) -> set[ModelName]:
    """Models that clients of a live router ask for; what a silent one said last is no demand."""
    return {name for facts in stopping.live_routers(world).values() for name in facts.asked}


def _give_up(draft: Draft, model: Model, wakes: dict[ModelName, float], spent: Failure) -> None:
    """Every attempt for this wish failed. It ends once its time to rest is told; only a new request begins anew."""
    if any(a.model == model.name and a.stop is None for a in draft.assignments.values()):
        return
    if demand.desired(draft.world, model, draft.now_s) <= model.replicas.min:
        return
    if draft.now_s < spent.at_s + REST_S:
        draft.wake(spent.at_s + REST_S)
        return
    del wakes[model.name]
    draft.event(f"model/{model.name}", f"its wake is given up after {spent.attempt} failed attempts: {spent.text}")


def _idle_models(draft: Draft, wakes: Mapping[ModelName, float]) -> list[ModelName]:
    """Models kept up by a wish whose every replica is idle at every live router."""
    routers = list(stopping.live_routers(draft.world).values()) if wakes else []
    if not routers:
        return []
    idle: frozenset[ReplicaId] = frozenset.intersection(*(facts.idle for facts in routers))
    candidates = {draft.assignments[id_].model for id_ in idle if id_ in draft.assignments} & wakes.keys()
    names = {name for name in candidates if name in draft.models and _sleeps(draft, draft.models[name])}
    busy = {a.model for a in draft.assignments.values() if a.model in names and a.stop is None} if names else set()
    busy = {a.model for a in draft.assignments.values() if a.model in busy and a.stop is None and a.replica not in idle}
    return sorted(names - busy)


def _sleeps(draft: Draft, model: Model) -> bool:
    """Routers that were asked to call it idle sooner have not told that its idle time is over."""
    idle_s, held = idle_after_s(draft.world, model, draft.now_s), draft.world.table.models.get(model.name)
    return idle_s is not None and (held is None or held.idle_after_s is None or held.idle_after_s >= idle_s)
