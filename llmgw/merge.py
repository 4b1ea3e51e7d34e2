"""Applying a plan to the world: replace by key, judge nothing. Runs in workflow code, so it is frozen by histories.

The accepted catalog itself is not in the plan: the caller hands it in (the raw value stays with who recorded it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from llmgw import rolling, table
from llmgw.catalog import Catalog
from llmgw.ids import ReplicaId, RouterId
from llmgw.plan import Judgement, Plan, Verdict
from llmgw.world import InputKind, RouterFacts, World

K = TypeVar("K")
V = TypeVar("V")


def accepted_catalog(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict on the catalog that is in force after these, when it came with them."""
    found = [v for v in verdicts if v.kind is InputKind.CATALOG and v.judgement is Judgement.ACCEPTED]
    return found[-1] if found else None


def merge(world: World, plan: Plan, now_s: float, catalog: Catalog | None = None) -> World:
    """`world` after `plan`; `catalog`: the one that the plan's last accepted catalog verdict is about."""
    judged = {v.arrival for v in plan.verdicts}
    accepted = accepted_catalog(plan.verdicts)
    gone = set(plan.gone)
    assignments = _put(world.assignments, {a.replica: a for a in plan.assign}, gone)
    specs = world.specs if not (plan.specs or gone) else {**world.specs, **plan.specs}
    if gone or plan.assign:
        used = {a.spec for a in assignments.values()}
        specs = {k: v for k, v in specs.items() if k in used}
    nodes = set(plan.forget_nodes)
    good = rolling.remember(world, world, plan.keep_good).good
    return replace(
        world,
        catalog=catalog if accepted is not None else world.catalog,
        generation=accepted.generation if accepted is not None else world.generation,
        digest=accepted.digest if accepted is not None else world.digest,
        inbox=tuple(i for i in world.inbox if i.arrival not in judged) if judged else world.inbox,
        wishes=world.wishes if plan.wishes is None else plan.wishes,
        settling_since_s=_settling(world, plan, now_s),
        epoch=world.epoch if plan.new_epoch is None else plan.new_epoch,
        seq=_seq(world, plan),
        fenced_by=world.fenced_by if plan.new_epoch is None else None,
        overtaken_by=world.overtaken_by if plan.jump_to_seq is None and plan.new_epoch is None else None,
        assignments=assignments,
        unreadable=_put(world.unreadable, {}, {*gone, *plan.forget_unreadable}),
        specs=specs,
        sent=_put(world.sent, {}, gone),
        refused=_put(world.refused, {}, gone),
        failures=_kept(world.failures, {k: v or None for k, v in plan.failures.items()}),
        next_replica=world.next_replica if plan.next_replica is None else plan.next_replica,
        good=_put(good, {}, set(plan.forget_good)),
        published_s=_published(world, plan, gone, now_s),
        resting=_kept(world.resting, {k: v or None for k, v in plan.resting.items()}),
        outbox=_kept(world.outbox, {k: v or None for k, v in plan.outbox.items()}),
        known=_put(world.known, plan.known, nodes),
        seen=_put(world.seen, {}, nodes),
        calls=_put(world.calls, {}, nodes),
        unclaimed=_kept(world.unclaimed, plan.unclaimed),
        table=_table(world, plan),
        table_revision=world.table_revision + bool(plan.table_change),
        routers=_routers(world, plan),
        waiting=_kept(world.waiting, plan.waiting),
    )


def _put(before: Mapping[K, V], new: Mapping[K, V], drop: set[K]) -> Mapping[K, V]:
    if not new and not any(key in before for key in drop):
        return before
    return {key: value for key, value in {**before, **new}.items() if key not in drop}


def _kept(before: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    if not changes:
        return before
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def _published(world: World, plan: Plan, gone: set[ReplicaId], now_s: float) -> Mapping[ReplicaId, float]:
    new = {e.id: now_s for e in plan.put_endpoints if e.id not in world.published_s}
    return _put(world.published_s, new, gone)


def _settling(world: World, plan: Plan, now_s: float) -> float | None:
    if plan.new_epoch is not None or plan.jump_to_seq is not None:
        return now_s
    return None if plan.settled else world.settling_since_s


def _seq(world: World, plan: Plan) -> int:
    return world.seq if plan.jump_to_seq is None else max(world.seq, plan.jump_to_seq)


def _routers(world: World, plan: Plan) -> Mapping[RouterId, RouterFacts]:
    routers = _put(world.routers, {}, set(plan.forget_routers))
    if plan.new_epoch is None:
        return routers
    # Under a new epoch every router is told anew, so that the former holder's tables are refused there.
    return {k: replace(v, acked_revision=-1, acked_seq=-1) for k, v in routers.items()}


def _table(world: World, plan: Plan) -> table.Table:
    return table.apply(world.table, plan.table_change) if plan.table_change else world.table
