"""Whether a start may be accepted: an ordered table of checks, the first that objects refuses it.

A refusal waits and costs no attempt. Pure over `View` but for looking at executables, secrets and weights on disk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.containers import ContainerTool
from agent.launch import unknown_placeholders, why_unnameable
from agent.ledger import Record
from agent.local import Executables, Secrets, find_tool, refuse, weights_argument
from llmgw.ids import DeviceId
from llmgw.wire import CommandBatch, Device, DeviceHealth, Inventory, Refusal, RefusalCode, Start


@dataclass(frozen=True)
class View:
    """What the node holds at the moment of judging. `records` are all replicas that are not proven gone."""

    inventory: Inventory
    quarantined: Mapping[DeviceId, str]
    records: tuple[Record, ...]
    executables: Executables
    secrets: Secrets
    containers: ContainerTool | None = None
    allow_images: tuple[str, ...] = ()


def admit(start: Start, view: View) -> Refusal | None:
    """Why `start` is refused now; None = everything but its ports is there."""
    for check in CHECKS:
        if (refusal := check(start, view)) is not None:
            return refusal
    return None


def malformed(batch: CommandBatch) -> tuple[str, ...]:
    """What makes a batch unfit to be looked at: it is refused whole, naming all of it."""
    problems: list[str] = []
    for number, command in enumerate(batch.commands):
        if command.kind in ("start", "stop") and not _is_safe_id(command.replica):
            problems.append(f"commands.{number}.replica: {command.replica!r} is no replica id")
        if command.kind != "start":
            continue
        launch = command.launch
        texts = {"argv": launch.argv, "env": (*launch.env, *launch.env.values(), *launch.secret_env)}
        problems += [
            f"commands.{number}.launch.{where}: holds a NUL" for where, items in texts.items() if "\0" in "".join(items)
        ]
        problems += [
            f"commands.{number}.launch: {name} is no placeholder; known: port, port:NAME of extra_ports, host, weights"
            for name in unknown_placeholders(launch)
        ]
        problems += [
            f"commands.{number}.launch.{field}: {name!r} is no variable name"
            for field, names in (("env", launch.env), ("secret_env", launch.secret_env))
            for name in names
            if not name or "=" in name
        ]
        if not launch.argv[0]:
            problems.append(f"commands.{number}.launch.argv: the first item, the executable, is empty")
    return tuple(problems)


def _has_devices(start: Start, view: View) -> Refusal | None:  # noqa: ARG001 - a row of CHECKS
    if start.launch.devices is not None and not start.claims:
        return refuse(
            RefusalCode.NO_DEVICES, f"{start.launch.engine} takes devices and none are claimed: it would take all"
        )
    return None


def _knows_devices(start: Start, view: View) -> Refusal | None:
    known = {device.id for device in view.inventory.devices}
    missing = [claim.device for claim in start.claims if claim.device not in known]
    if missing:
        why = "" if view.inventory.complete else f" (inventory incomplete: {view.inventory.problem})"
        return refuse(RefusalCode.DEVICE_UNKNOWN, f"no such device here: {', '.join(missing)}{why}")
    return None


def _devices_have_names(start: Start, view: View) -> Refusal | None:
    selection, by_id = start.launch.devices, _by_id(view)
    for claim in start.claims if selection is not None else ():
        if selection is not None and (reason := why_unnameable(selection, by_id[claim.device])):
            return refuse(RefusalCode.DEVICE_UNKNOWN, reason)
    return None


def _devices_are_well(start: Start, view: View) -> Refusal | None:
    by_id = _by_id(view)
    for claim in start.claims:
        device = by_id[claim.device]
        if (reason := view.quarantined.get(claim.device)) is not None:
            return refuse(RefusalCode.DEVICE_QUARANTINED, f"{claim.device} is quarantined: {reason}")
        if device.health is not DeviceHealth.OK:
            return refuse(RefusalCode.DEVICE_QUARANTINED, f"{claim.device} is {device.health}: {device.reason}")
        if claim.memory_mib is not None and device.memory_mib is None:
            return refuse(
                RefusalCode.DEVICE_UNKNOWN, f"the memory of {claim.device} is unknown: it can only be claimed whole"
            )
    return None


def _devices_are_free(start: Start, view: View) -> Refusal | None:
    by_id = _by_id(view)
    held = [(record.replica, claim) for record in view.records for claim in record.start.claims]
    for number, claim in enumerate(start.claims):
        others = [(replica, other) for replica, other in held if other.device == claim.device]
        others += [(start.replica, other) for other in start.claims[:number] if other.device == claim.device]
        if not others:
            if claim.memory_mib is None or claim.memory_mib <= (by_id[claim.device].memory_mib or 0):
                continue
        elif claim.memory_mib is not None and all(other.memory_mib is not None for _, other in others):
            used = sum(other.memory_mib or 0 for _, other in others)
            if used + claim.memory_mib <= (by_id[claim.device].memory_mib or 0):
                continue
        return refuse(RefusalCode.DEVICE_CLAIMED, _claimed_text(by_id[claim.device], claim.memory_mib, others))
    return None


def _claimed_text(device: Device, wanted_mib: int | None, others: Sequence[tuple[str, object]]) -> str:
    by = ", ".join(sorted({replica for replica, _ in others})) or "nobody"
    want = "the whole device is" if wanted_mib is None else f"{wanted_mib} of {device.memory_mib} MiB are"
    return f"{device.id}: {want} wanted, it is claimed by {by}"


def _has_memory(start: Start, view: View) -> Refusal | None:
    total = view.inventory.host_memory_mib
    used = sum(record.start.host_memory_mib for record in view.records)
    if total is None or used + start.host_memory_mib <= total:
        return None
    return refuse(
        RefusalCode.NO_MEMORY, f"{start.host_memory_mib} MiB of host memory wanted, {used} of {total} MiB are claimed"
    )


def _may_execute(start: Start, view: View) -> Refusal | None:
    spec = start.launch.container
    found = (
        view.executables.find(start.launch.argv[0])
        if spec is None
        else find_tool(view.containers, spec, view.allow_images)
    )
    return found if isinstance(found, Refusal) else None


def _has_secrets(start: Start, view: View) -> Refusal | None:
    values = view.secrets.resolve(start.launch.secret_env)
    return values if isinstance(values, Refusal) else None


def _has_weights(start: Start, view: View) -> Refusal | None:  # noqa: ARG001 - a row of CHECKS
    if start.launch.weights is None:
        return None
    found = weights_argument(start.launch.weights)
    return found if isinstance(found, Refusal) else None


CHECKS: tuple[Callable[[Start, View], Refusal | None], ...] = (
    _has_devices,
    _knows_devices,
    _devices_have_names,
    _devices_are_well,
    _devices_are_free,
    _has_memory,
    _may_execute,
    _has_secrets,
    _has_weights,
)


def _by_id(view: View) -> dict[DeviceId, Device]:
    return {device.id: device for device in view.inventory.devices}


def _is_safe_id(replica: str) -> bool:
    """Safe as a file's name, and short enough for one."""
    return 0 < len(replica) <= 128 and replica[0].isalnum() and all(char.isalnum() or char in "._-" for char in replica)
