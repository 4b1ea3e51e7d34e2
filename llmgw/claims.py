"""When claims on devices clash: two replicas are on one device at the same time only where each has a share of it."""

from collections.abc import Iterable, Mapping

from llmgw.ids import DeviceId
from llmgw.wire import DeviceClaim


def by_device(claims: Iterable[DeviceClaim]) -> dict[DeviceId, bool]:
    """The devices claimed, and whether any of the claims on each is for the whole."""
    found: dict[DeviceId, bool] = {}
    for claim in claims:
        found[claim.device] = found.get(claim.device, False) or claim.memory_mib is None
    return found


def clashes(one: Mapping[DeviceId, bool], other: Mapping[DeviceId, bool]) -> set[DeviceId]:
    """Devices that both claim and at least one claims whole."""
    return {device for device in one.keys() & other.keys() if one[device] or other[device]}
