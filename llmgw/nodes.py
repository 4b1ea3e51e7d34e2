"""Nodes as a pass sees them: derived anew from what is declared, the last report and the facts about silence.

Nothing here is stored. A node that is set aside or belongs to somebody else is never told anything, and its reports
judge nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from llmgw import members
from llmgw.catalog import Node
from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.memo import Latest
from llmgw.wire import Owner, ReplicaReport
from llmgw.world import Drain, Seen, SilenceLevel, World

BRAKE_LEAST_SILENT = 3
"""Fewer silent nodes are never braked: in a fleet of three, one that is lost is replaced."""
BRAKE_SHARE = 0.25
BRAKE_WINDOW_S = 60.0


class NodeState(StrEnum):
    UNKNOWN = "unknown"  # not heard in this run, and not silent for long enough to say more
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    LOST = "lost"
    SET_ASIDE = "set_aside"  # its identity is in doubt
    FOREIGN = "foreign"  # belongs to another installation or fleet


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node in this pass. `frozen`: the brake holds whatever its silence would cause."""

    node: Node
    state: NodeState
    seen: Seen | None
    rows: Mapping[ReplicaId, ReplicaReport]
    """Engines that carry our mark."""
    cordoned: bool = False
    drain: Drain | None = None
    leaving: bool = False
    frozen: bool = False
    note: str = ""
    """The state in words; empty while healthy."""

    @property
    def is_ordinary(self) -> bool:
        """Whether it may keep what runs there: heard, in no doubt, and nobody empties it."""
        return self.state is NodeState.HEALTHY and self.drain is None and not self.leaving

    @property
    def judges(self) -> bool:
        """Whether its last report is evidence."""
        return self.state is NodeState.HEALTHY

    @property
    def listens(self) -> bool:
        """Whether it may be told commands."""
        return self.state in (NodeState.HEALTHY, NodeState.UNKNOWN)

    @property
    def keeps_routes(self) -> bool:
        """Whether what is published there may stay so: in doubt nothing is withdrawn, for silence it is."""
        return self.frozen or not self.is_silent

    @property
    def is_silent(self) -> bool:
        return self.state in (NodeState.SUSPECT, NodeState.LOST)

    @property
    def is_lost(self) -> bool:
        """Lost, and its replicas may be placed elsewhere."""
        return self.state is NodeState.LOST and not self.frozen


@dataclass(frozen=True, slots=True)
class Survey:
    nodes: Mapping[NodeId, NodeView]
    brake: str = ""
    """Why silence causes nothing now; empty when the brake is off."""
    has_lost: bool = False
    """Whether any node is lost, and its replicas may be placed elsewhere."""

    def of(self, node: NodeId) -> NodeView | None:
        return self.nodes.get(node)

    def all_heard(self) -> bool:
        """Every node has reported in this run or is lost."""
        return all(view.seen is not None or view.state is NodeState.LOST for view in self.nodes.values())


_SURVEYS: Latest[str, Survey] = Latest(64)


def survey(world: World) -> Survey:
    """Every member node in this pass, in order of its id."""
    maps = (world.catalog, world.wishes, world.seen, world.silence, world.troubles, world.known, world.assignments)
    return _SURVEYS.get(world.fleet, (*maps, world.installation), lambda: _survey(world))


def _survey(world: World) -> Survey:
    declared = dict(sorted(members.nodes(world).items()))
    doubts = _identity_doubts(world, declared)
    braked = _braked(world, declared)
    wishes = world.wishes
    special = {*_silent(world), *doubts, *braked, *wishes.cordoned, *wishes.drains, *wishes.leaving}
    views = {
        id_: _view(world, node, doubts.get(id_, ""), id_ in braked) if id_ in special else _plain_view(world, node)
        for id_, node in declared.items()
    }
    brake = _brake_in_words(braked, declared) if braked else ""
    return Survey(views, brake, any(view.is_lost for view in views.values()))


def _silent(world: World) -> Iterable[NodeId]:
    silent = (target for target, s in world.silence.items() if s.level is not SilenceLevel.HEARD)
    return [NodeId(id_) for kind, _, id_ in (target.partition("/") for target in silent) if kind == "node"]


_PLAIN: Latest[tuple[str, NodeId], NodeView] = Latest(20_000)


def _plain_view(world: World, node: Node) -> NodeView:
    """The view of a node of which no silence, doubt or wish is known: it follows from its report alone."""
    seen = world.seen.get(node.id)
    if seen is None:
        return _view(world, node, "", braked=False)
    made_of = (node, seen, world.installation)
    return _PLAIN.get((world.fleet, node.id), made_of, lambda: _view(world, node, "", braked=False))


def _view(world: World, node: Node, doubt: str, braked: bool) -> NodeView:
    seen = world.seen.get(node.id)
    state, note = _state(world, node.id, seen, doubt)
    return NodeView(
        node=node,
        state=state,
        seen=seen,
        rows={} if seen is None else _ours(world, seen),
        cordoned=node.id in world.wishes.cordoned,
        drain=world.wishes.drains.get(node.id),
        leaving=node.id in world.wishes.leaving,
        frozen=braked,
        note=note,
    )


def _state(world: World, id_: NodeId, seen: Seen | None, doubt: str) -> tuple[NodeState, str]:
    silence, confirmed = world.silence.get(f"node/{id_}"), id_ in world.wishes.confirmed_lost
    if silence is not None and silence.level is not SilenceLevel.HEARD:
        lost = silence.level is SilenceLevel.LOST or confirmed
        return (NodeState.LOST if lost else NodeState.SUSPECT), world.troubles.get(f"node/{id_}", "silent")
    if seen is None:
        note = world.troubles.get(f"node/{id_}", "not heard yet")
        return (NodeState.LOST if confirmed else NodeState.UNKNOWN), note
    if seen.owner is not None and seen.owner != Owner(installation=world.installation, fleet=world.fleet):
        owner = f"installation {seen.owner.installation}, fleet {seen.owner.fleet}"
        mend = f"`llmgw nodes release {id_} --owner {seen.owner.installation}/{seen.owner.fleet}` has it forget that"
        return NodeState.FOREIGN, f"its agent belongs to {owner}; {mend}"
    if seen.says:
        return NodeState.SET_ASIDE, (
            f"its agent says that it is node {seen.says}, and takes no command for {id_}: correct the id or URL here, "
            "or the agent's --node-id"
        )
    if doubt:
        return NodeState.SET_ASIDE, doubt
    return NodeState.HEALTHY, ""


def _ours(world: World, seen: Seen) -> dict[ReplicaId, ReplicaReport]:
    ours = (world.installation, world.fleet)
    return {row.replica: row for row in seen.replicas if (row.mark.installation, row.mark.fleet) == ours}


def _identity_doubts(world: World, declared: Iterable[NodeId]) -> dict[NodeId, str]:
    """Nodes that claim the same machine or device as another: all of them are set aside, each naming the others. So
    is a node whose name another machine has taken, while it holds anything."""
    claimed = _claimed_twice(world, declared)
    doubts = {id_: text for id_ in declared if (text := _other_machine(world, id_))}
    if doubts:
        holding = {assignment.node for assignment in world.assignments.values()}
        doubts = {id_: text for id_, text in doubts.items() if id_ in holding}
    for (what, value), nodes in claimed.items():
        right = {id_ for id_ in nodes if _is_confirmed(world, id_)}
        # Two machines may well have one id, where they are copies of one image; a device is in one place only.
        for id_ in nodes if what == "device" and len(right) != 1 else sorted(set(nodes) - right):
            others = ", ".join(sorted(set(nodes) - {id_})) or id_
            doubts.setdefault(id_, f"the same {what} {value} is also reported by {others}; {_CONFIRM}")
    return doubts


_DEVICES: Latest[tuple[str, NodeId], frozenset[DeviceId]] = Latest(20_000)


def _claimed_twice(world: World, declared: Iterable[NodeId]) -> Mapping[tuple[str, str], list[NodeId]]:
    """Machine ids and devices that several nodes report, in the order of `declared`."""
    # A machine may come back under another name, so what a lost one reported last does not count.
    heard = {id_: s for id_ in declared if (s := world.seen.get(id_)) is not None and not _is_lost(world, id_)}
    machines = [seen.machine for seen in heard.values() if seen.machine]
    devices = [_devices(world, id_, seen) for id_, seen in heard.items()]
    if len(set(machines)) == len(machines) and len(frozenset().union(*devices)) == sum(map(len, devices)):
        return {}
    claims: defaultdict[tuple[str, str], list[NodeId]] = defaultdict(list)
    for (id_, seen), mine in zip(heard.items(), devices, strict=True):
        if seen.machine:
            claims["machine id", seen.machine].append(id_)
        for device in sorted(mine):
            claims["device", device].append(id_)
    return {what: nodes for what, nodes in claims.items() if len(nodes) > 1}


def _devices(world: World, id_: NodeId, seen: Seen) -> frozenset[DeviceId]:
    inventory = seen.inventory
    return _DEVICES.get((world.fleet, id_), (inventory,), lambda: frozenset(d.id for d in inventory.devices))


_CONFIRM = "`llmgw nodes confirm NODE` says which is the one"


def _is_confirmed(world: World, id_: NodeId) -> bool:
    """Whether an operator has said that the very machine that answers now is this node."""
    seen = world.seen.get(id_)
    return seen is not None and bool(seen.machine) and world.wishes.confirmed_machines.get(id_) == seen.machine


def _is_lost(world: World, id_: NodeId) -> bool:
    silence = world.silence.get(f"node/{id_}")
    return silence is not None and silence.level is SilenceLevel.LOST


def _other_machine(world: World, id_: NodeId) -> str:
    """Why the machine behind a known name seems to be another; a machine is its id or any of its devices."""
    known, seen = world.known.get(id_), world.seen.get(id_)
    if known is None or seen is None or known.machine == seen.machine or id_ in world.wishes.confirmed_lost:
        return ""
    if _is_confirmed(world, id_):
        return ""
    if not seen.inventory.complete or {d.id for d in seen.inventory.devices} & set(known.devices):
        return ""
    return (
        f"machine {seen.machine} answers under the name of machine {known.machine}; "
        f"`llmgw nodes confirm {id_}` says that it is the one now, and that the former is gone for good"
    )


def _braked(world: World, declared: Mapping[NodeId, Node]) -> frozenset[NodeId]:
    """Nodes that fell silent within a minute of many others: it is probably not the nodes."""
    silent = {
        id_: silence.since_s
        for id_ in declared
        if (silence := world.silence.get(f"node/{id_}")) is not None
        and silence.level is not SilenceLevel.HEARD
        and id_ not in world.wishes.confirmed_lost
    }
    together = _most_within(silent, BRAKE_WINDOW_S)
    if len(together) < BRAKE_LEAST_SILENT or len(together) <= BRAKE_SHARE * len(declared):
        return frozenset()
    return frozenset() if _one_zone_of_several(together, declared) else together


def _brake_in_words(braked: frozenset[NodeId], declared: Mapping[NodeId, Node]) -> str:
    return (
        f"{len(braked)} of {len(declared)} nodes fell silent within a minute: nothing is withdrawn or moved for it. "
        "`llmgw confirm-lost NODE` says that a node is really gone"
    )


def _most_within(times: Mapping[NodeId, float], window_s: float) -> frozenset[NodeId]:
    """The largest group whose times lie within `window_s`; the earliest of equals."""
    ordered = sorted(times, key=lambda id_: (times[id_], id_))
    best, first = (0, 0), 0
    for last, id_ in enumerate(ordered):
        while times[id_] - times[ordered[first]] > window_s:
            first += 1
        if last + 1 - first > best[1] - best[0]:
            best = (first, last + 1)
    return frozenset(ordered[slice(*best)])


def _one_zone_of_several(silent: Iterable[NodeId], declared: Mapping[NodeId, Node]) -> bool:
    zones = {node.zone for node in declared.values()}
    silent_zones = {declared[id_].zone for id_ in silent}
    return len(silent_zones) == 1 and None not in silent_zones and len(zones) > 1
