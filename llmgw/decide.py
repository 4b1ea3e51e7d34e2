"""`decide(world, now) -> Plan`: everything the plane ever decides, as one pure function.

Steps in order; each reads the world and what the pass has decided so far. `merge(world, decide(world, now))` is the
world in which nothing is left to decide until something happens or `wake_at_s` comes.
"""

from dataclasses import dataclass, replace

from llmgw import (
    adoption,
    difference,
    endpoints,
    evidence,
    filling,
    fulfilled,
    holding,
    members,
    outbox,
    plan_size,
    pushing,
    resting,
    rolling,
    salvage,
    sleeping,
    stopping,
    waits,
    waking,
)
from llmgw.draft import Draft
from llmgw.ids import NodeId, RouterId
from llmgw.judging import Judged, judge
from llmgw.nodes import Survey, survey
from llmgw.plan import Plan
from llmgw.recent import Recent
from llmgw.showing.phases import Phase, phase
from llmgw.table import TableChange
from llmgw.world import World


def decide(world: World, now_s: float) -> Plan:
    """The plan for `world` at `now_s` (workflow time, epoch seconds)."""
    judged = judge(world, now_s)
    kept = rolling.to_keep(world, judged.world)
    after = rolling.remember(world, judged.world, kept)
    seen = survey(after)
    draft = Draft.over(after, now_s, seen, holding.reason(after, seen, now_s))
    evidence.weigh(draft)
    unread = salvage.salvage(draft)
    adoption.adopt(draft)
    sleeping.end(draft)
    waking.settle(draft)
    filling.fill(draft)
    routes = endpoints.routes(draft)
    revision = world.table_revision + bool(routes.change)
    stopping.command(draft, routes.published, revision)
    sleeping.command(draft, routes.published, revision)
    stopping.abandon_lost(draft)
    resting.rest(draft, revision)
    kicked = outbox.write(draft)
    pushed = pushing.due(draft, revision)
    waits.tell(draft)
    ended = after.ending and not draft.assignments and pushing.all_told(draft, revision)
    made = _plan(world, judged, draft, routes.change, _Lanes(kicked, pushed, ended))
    versions = {"keep_good": kept, "forget_good": rolling.to_forget(draft)}
    phase_ = str(_phase(draft, made, revision))
    return made.model_copy(update={**versions, "forget_unreadable": unread, "phase": phase_})


def _phase(draft: Draft, made: Plan, revision: int) -> Phase:
    """What the fleet is doing after this plan; of the world after it only what a phase is told by."""
    before, change = draft.world, made.table_change
    puts, drops = {e.id: e for e in change.put_endpoints}, set(change.drop_endpoints)
    routed = {k: v for k, v in {**before.table.endpoints, **puts}.items() if k not in drops} if change else None
    begins_anew = made.new_epoch is not None or made.jump_to_seq is not None
    settling_since_s = None if made.settled else before.settling_since_s
    after = replace(
        before,
        assignments=draft.assignments,
        waiting=draft.waits,
        outbox=draft.outbox,
        table=before.table if routed is None else replace(before.table, endpoints=routed),
        table_revision=revision,
        settling_since_s=draft.now_s if begins_anew else settling_since_s,
        fenced_by=None if made.new_epoch is not None else before.fenced_by,
        overtaken_by=None if begins_anew else before.overtaken_by,
    )
    return phase(after, Recent(), draft.now_s)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """What is set going, or that nothing ever will be again."""

    kick: tuple[NodeId, ...]
    push: tuple[RouterId, ...]
    ended: bool


def _plan(world: World, judged: Judged, draft: Draft, change: TableChange, lanes: _Lanes) -> Plan:
    after = draft.world
    new_specs = difference.changed(world.specs, draft.specs)
    used = {a.spec for a in draft.assignments.values()} if new_specs else set()
    wishes = fulfilled.without(draft)
    settled = holding.settled(after, draft.survey, draft.now_s)
    jump, epoch = _jump(after, draft.survey), _new_epoch(after)  # the next plan acts: this one still holds
    if (pause := holding.paused(after, draft.now_s)) is not None and pause.until_s is not None:
        draft.wake(pause.until_s)
    if after.settling_since_s is not None and not settled:
        draft.wake(holding.settle_until_s(after))
    known = difference.changed(world.known, difference.known_of(draft))
    waiting = difference.with_removed(world.waiting, draft.waits)
    identities = plan_size.fitting_known(known) if known else {}
    cut = len(known) > len(identities) or len(waiting) > plan_size.MAX_WAITING
    left = after if wishes is after.wishes else replace(after, wishes=wishes)
    nodes, routers = members.nodes(left), members.routers(after)
    return Plan(
        verdicts=judged.verdicts,
        wishes=wishes if wishes != world.wishes else None,
        assign=difference.in_order(difference.changed(world.assignments, draft.touched())),
        gone=difference.removed(world.assignments, draft.assignments),
        specs={k: v for k, v in new_specs.items() if k in used},
        failures={k: v or () for k, v in difference.with_removed(world.failures, draft.failures).items()},
        next_replica=draft.next_replica if draft.next_replica != world.next_replica else None,
        known=identities,
        forget_nodes=tuple(sorted(k for k in {*world.known, *world.seen, *world.calls} if k not in nodes)),
        unclaimed=difference.with_removed(world.unclaimed, draft.unclaimed),
        resting={k: v or () for k, v in difference.with_removed(world.resting, draft.resting).items()},
        outbox={k: v or () for k, v in difference.with_removed(world.outbox, draft.outbox).items()},
        kick=lanes.kick,
        put_models=change.put_models,
        drop_models=change.drop_models,
        put_endpoints=change.put_endpoints,
        drop_endpoints=change.drop_endpoints,
        push=lanes.push,
        forget_routers=tuple(sorted(k for k in world.routers if k not in routers)),
        waiting=difference.first(waiting, plan_size.MAX_WAITING),
        events=tuple(draft.events),
        settled=settled,
        jump_to_seq=jump,
        new_epoch=epoch,
        ended=lanes.ended,
        wake_at_s=draft.wake_at_s(),
        targets_changed=difference.targets_changed(world, left),
        more=judged.more or draft.more or cut or jump is not None or epoch is not None,
    )


def _jump(world: World, seen: Survey) -> int | None:
    if world.overtaken_by is None or world.fenced_by is not None or not seen.all_heard():
        return None
    return world.overtaken_by.seq + holding.JUMP


def _new_epoch(world: World) -> int | None:
    if world.fenced_by is None or world.wishes.takeover_s is None:
        return None
    return max(world.epoch, world.fenced_by.epoch) + 1
