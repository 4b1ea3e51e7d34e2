"""What must hold in every simulated fleet at every moment. Each function raises AssertionError with what it saw."""

from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import EngineState
from sim.fleet import SimFleet


def no_device_is_used_twice(fleet: SimFleet) -> None:
    """No two engines that may be alive hold one device."""
    for node in fleet.nodes.values():
        holders: dict[DeviceId, ReplicaId] = {}
        for replica, engine in node.engines.items():
            for claim in engine.start.claims:
                other = holders.setdefault(claim.device, replica)
                assert other == replica, f"{claim.device} is held by {other} and {replica}"


def no_device_is_promised_twice(fleet: SimFleet) -> None:
    """Two assignments share a device only while the one is being released and the other waits."""
    held: dict[DeviceId, list[ReplicaId]] = {}
    for assignment in fleet.world.assignments.values():
        if assignment.stop is None or not assignment.stop.commanded:
            for claim in assignment.claims:
                held.setdefault(claim.device, []).append(assignment.replica)
    twice = {device: replicas for device, replicas in held.items() if len(replicas) > 1}
    assert not twice, f"promised twice: {twice}"


def nothing_handed_to_a_stop_is_published(fleet: SimFleet) -> None:
    commanded = {r for r, a in fleet.world.assignments.items() if a.stop is not None and a.stop.commanded}
    assert not commanded & set(fleet.world.table.endpoints), f"published while stopping: {commanded}"


def every_start_happens_once(fleet: SimFleet) -> None:
    for node in fleet.nodes.values():
        assert len(node.starts) == len(set(node.starts)), f"started twice on {node.id}: {node.starts}"


def nothing_stops_under_a_routers_pick(fleet: SimFleet) -> None:
    """An engine that was told to stop is in no table that a heard router serves."""
    for node in fleet.nodes.values():
        stopping = {r for r, e in node.engines.items() if e.state is EngineState.STOPPING and e.exit_code is None}
        for id_, router in fleet.routers.items():
            if f"router/{id_}" not in fleet.cut:
                still = stopping & set(router.table.endpoints)
                assert not still, f"{id_} still picks {still}, which {node.id} was told to stop"


ALL = (
    no_device_is_used_twice,
    no_device_is_promised_twice,
    nothing_handed_to_a_stop_is_published,
    every_start_happens_once,
    nothing_stops_under_a_routers_pick,
)
