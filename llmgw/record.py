"""Recording what happened: observations, sendings and answers become facts of the world. Never decides.

Each function returns the new world. They run in workflow code, so they only replace values by key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgw import alike
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, PublishCall
from llmgw.ids import NodeId, ReplicaId
from llmgw.observation import NodeSeen, Observation, RouterSeen
from llmgw.wire import Inventory, Outcome, Owner, Token
from llmgw.world import Call, Refused, RestingPort, RouterFacts, Seen, Silence, SilenceLevel, World

# --- observation ---------------------------------------------------------------------------------------------------


def observed(world: World, observation: Observation, now_s: float) -> World:
    """The world after an observation. A report of the same agent instance with a lower revision is dropped."""
    seen, silence, routers, troubles = (
        dict(world.seen),
        dict(world.silence),
        dict(world.routers),
        dict(world.troubles),
    )
    for node in observation.nodes:
        seen[node.node] = _seen(seen.get(node.node), node, now_s)
    for router in observation.routers:
        routers[router.router] = _router_seen(world, routers.get(router.router, RouterFacts()), router)
    for item in observation.silence:
        silence[item.target] = _silence(silence.get(item.target), item.level, now_s - item.silent_s)
    for trouble in observation.troubles:
        if trouble.text:
            troubles[trouble.target] = trouble.text
        else:
            troubles.pop(trouble.target, None)
    return replace(  # the very same maps where nothing is told of them
        world,
        seen=seen if observation.nodes else world.seen,
        silence=silence if observation.silence else world.silence,
        routers=routers if observation.routers else world.routers,
        troubles=troubles if observation.troubles else world.troubles,
    )


def _silence(before: Silence | None, level: SilenceLevel, since_s: float) -> Silence:
    """From suspect to lost it is one silence. It began when the target was last heard: a new run or pool that tells
    all silences at once must not make them look simultaneous."""
    still = before is not None and (before.level is SilenceLevel.HEARD) == (level is SilenceLevel.HEARD)
    return Silence(level, before.since_s if before is not None and still else since_s)


def _seen(before: Seen | None, node: NodeSeen, now_s: float) -> Seen:
    if before is not None and before.instance == node.instance and before.revision > node.revision:
        return before
    inventory = None if node.inventory is None else alike.inventory(node.node, node.inventory)
    if inventory is None:
        same_boot = before is not None and before.boot == node.boot
        # Without an inventory of this boot nothing is known of its devices: incomplete, never empty.
        inventory = before.inventory if before is not None and same_boot else Inventory(complete=False)
    return Seen(
        node=node.node,
        machine=node.machine,
        boot=node.boot,
        instance=node.instance,
        revision=node.revision,
        token=node.token,
        owner=node.owner,
        inventory=inventory,
        replicas=alike.rows(node.node, node.replicas),
        quarantined=dict(node.quarantined),
        weights=node.weights,
        disk=node.disk,
        hostname=node.hostname,
        version=node.version,
        says=node.says,
        problems=node.problems,
        at_s=now_s,
        since=_since(before, node, now_s),
    )


def _since(before: Seen | None, node: NodeSeen, now_s: float) -> Mapping[ReplicaId, float]:
    """A replica that is still in the state it was in keeps the moment; only the first report tells of earlier ones."""
    states = {} if before is None else {row.replica: row.state for row in before.replicas}
    known: Mapping[ReplicaId, float] = {} if before is None else before.since
    ages_s = node.ages_s or [row.state_age_s for row in node.replicas]
    return {
        row.replica: known.get(row.replica, now_s) if states.get(row.replica) is row.state else now_s - age_s
        for row, age_s in zip(node.replicas, ages_s, strict=False)
    }


def _router_seen(world: World, facts: RouterFacts, seen: RouterSeen) -> RouterFacts:
    """A router's state counts only if it is no older than what the router last acknowledged to us; that of a new
    instance always does, since it may have come back with an older table, or none."""
    new = seen.instance != facts.instance
    known = bool(facts.instance)
    facts = replace(
        facts,
        instance=seen.instance,
        began_anew=facts.began_anew or (new and known),
        idle=frozenset(seen.idle),
        asked=frozenset(seen.asked),
    )
    held = seen.held
    if held is None:
        return replace(facts, held_digest="", held_seq=-1)
    ours = held.token.installation == world.installation and held.token.epoch == world.epoch
    if ours and held.token.seq < facts.acked_seq and not (new and known):
        return facts
    return replace(
        facts,
        held_digest=held.digest,
        held_seq=held.token.seq if ours else -1,
        draining=frozenset(seen.draining),
    )


# --- commands ------------------------------------------------------------------------------------------------------


def sending(world: World, call: DispatchCall, now_s: float) -> World:
    """Before a batch leaves: its token is used up, and each replica it names remembers it."""
    sent = dict(world.sent)
    sent.update(dict.fromkeys(call.subjects(), call.token.seq))
    calls = {**world.calls, call.node: replace(world.calls.get(call.node, Call()), asked_s=now_s)}
    return replace(world, seq=call.token.seq, sent=sent, calls=calls, resting=_named(world, call))


def _named(world: World, call: DispatchCall) -> Mapping[NodeId, tuple[RestingPort, ...]]:
    """The ports that this batch is the first to name remember it."""
    if not call.released_ports:
        return world.resting
    ports = tuple(
        replace(port, named_seq=call.token.seq) if port.let_go and port.named_seq < 0 else port
        for port in world.resting.get(call.node, ())
    )
    return {**world.resting, call.node: ports}


def answered(world: World, call: DispatchCall, answer: DispatchAnswer, now_s: float) -> World:
    """After a batch: refusals, finished tasks, how the call went, and who holds a newer token."""
    before = world.calls.get(call.node, Call())
    calls = dict(world.calls)
    if answer.outcome is CallOutcome.ANSWERED:
        calls[call.node] = Call(told_s=now_s, more=call.more)
    else:
        calls[call.node] = Call(before.failures + 1, now_s, answer.text, before.told_s)
    world = replace(world, calls=calls)
    if answer.outcome is not CallOutcome.ANSWERED:
        return _overtaken(world, answer.held, answer.owner if answer.outcome is CallOutcome.FOREIGN else None)
    told = {*call.subjects(), *call.waiting()}
    refused = {k: v for k, v in world.refused.items() if k not in told}
    for result in answer.refused:
        if result.outcome is Outcome.REFUSED and result.refusal is not None:
            refused[ReplicaId(result.subject)] = Refused(result.refusal.code, result.refusal.message, now_s)
    done = {t.task for t in answer.tasks}
    if done:
        tasks = tuple(t for t in world.wishes.tasks if t.id not in done)
        world = replace(world, wishes=replace(world.wishes, tasks=tasks))
    return _gone(replace(world, refused=refused), call.node, answer.gone)


def _gone(world: World, node: NodeId, gone: Sequence[ReplicaId]) -> World:
    """The node's report without what its answer has proven gone. Whatever was sent of these cannot begin any more, so
    that each later word of the node is evidence; of the others this says nothing."""
    seen = world.seen.get(node)
    if not gone or seen is None:
        return world
    rows = alike.rows(node, tuple(row for row in seen.replicas if row.replica not in gone))
    sent = {**world.sent, **{replica: 0 for replica in gone if replica in world.sent}}
    return replace(world, seen={**world.seen, node: replace(seen, replicas=rows)}, sent=sent)


def _overtaken(world: World, held: Token | None, owner: Owner | None) -> World:
    """A newer token than ours is held somewhere (DESIGN §5). An agent's foreign owner concerns that agent alone."""
    if held is None or owner is not None:
        return world
    if (held.installation, held.fleet) != (world.installation, world.fleet) or held.epoch > world.epoch:
        return replace(world, fenced_by=held)
    known = world.overtaken_by
    if held.epoch == world.epoch and held.seq > world.seq and (known is None or held.seq > known.seq):
        return replace(world, overtaken_by=held)
    return world


# --- tables --------------------------------------------------------------------------------------------------------


def pushing(world: World, call: PublishCall, now_s: float) -> World:
    """Before a table leaves: its token is used up."""
    facts = world.routers.get(call.router, RouterFacts())
    routers = {**world.routers, call.router: replace(facts, asked_s=now_s, began_anew=False)}
    return replace(world, seq=call.token.seq, routers=routers)


def published(world: World, call: PublishCall, answer: PublishAnswer, now_s: float) -> World:
    """After a push: what the router acknowledged, or how the call failed."""
    routers = dict(world.routers)
    facts = replace(routers.get(call.router, RouterFacts()), asked_s=None)
    if answer.outcome is CallOutcome.ANSWERED:
        draining = frozenset(answer.draining)
        if facts.began_anew:
            # Another instance was heard meanwhile, and nobody knows which of them has answered: what it holds is what
            # it says itself, and a request in flight at either counts.
            facts = replace(facts, draining=facts.draining | draining)
        else:
            facts = replace(facts, held_digest=answer.digest, held_seq=call.token.seq, draining=draining)
        routers[call.router] = replace(
            facts,
            acked_revision=answer.revision,
            acked_seq=call.token.seq,
            acked_digest=answer.digest,
            confirmed_s=now_s,
            failures=0,
            failed_s=None,
            problem="",
        )
        return replace(world, routers=routers)
    routers[call.router] = replace(facts, failures=facts.failures + 1, failed_s=now_s, problem=answer.text)
    world = replace(world, routers=routers)
    # A router whose table for this fleet belongs to another installation fences us as much as a higher epoch does.
    return _overtaken(world, answer.held, None)


def forget_silence(world: World) -> World:
    """A new pool starts all silence clocks at zero."""
    return replace(world, silence={}, troubles={})
