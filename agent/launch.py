"""From a launch spec to the exact argv and environment of one process. Pure; nothing is split, quoted or expanded.

Exactly the placeholders of `LaunchSpec` are replaced. Order, repeats and empty items stay as they came.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.ids import DeviceId
from llmgw.wire import Device, DeviceClaim, DeviceNaming, DeviceSelection, LaunchSpec

PYTHON = "${llmgw:python}"
"""The agent's own interpreter, also as the executable."""
_PLACEHOLDER = re.compile(r"\$\{llmgw:(port|host|weights|python)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Place:
    """What the node fills in."""

    host: str
    port: int
    extra_ports: Mapping[str, int]
    weights: str
    ordinals: Mapping[DeviceId, int]
    """The numbers of devices, for engines that take numbers."""


@dataclass(frozen=True)
class Invocation:
    argv: tuple[str, ...]
    env: Mapping[str, str]


def render(
    launch: LaunchSpec, place: Place, claims: tuple[DeviceClaim, ...], inherited: Mapping[str, str]
) -> Invocation:
    """argv and environment: what is inherited (none of the agent's own settings), the spec's, the devices'."""
    env = {name: value for name, value in inherited.items() if not name.startswith("LLMGW_")}
    env |= {name: fill(value, place) for name, value in launch.env.items()}
    if launch.devices is not None:
        env |= select_devices(launch.devices, claims, place.ordinals)
    return Invocation(argv=tuple(fill(item, place) for item in launch.argv), env=env)


def fill(text: str, place: Place) -> str:
    """`text` with the known placeholders replaced; any other text stays byte for byte."""

    def value(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "port" and name is not None:
            return str(place.extra_ports[name]) if name in place.extra_ports else match[0]
        if name is not None:
            return match[0]
        return {"port": str(place.port), "host": place.host, "weights": place.weights, "python": sys.executable}[kind]

    return _PLACEHOLDER.sub(value, text)


def select_devices(
    selection: DeviceSelection, claims: tuple[DeviceClaim, ...], ordinals: Mapping[DeviceId, int]
) -> dict[str, str]:
    """The variables that show an engine its devices, in the order of the claims."""
    by_uuid = selection.naming is DeviceNaming.UUID
    names = [claim.device if by_uuid else str(ordinals[claim.device]) for claim in claims]
    return {**selection.extra_env, **{variable: ",".join(names) for variable in selection.variables}}


def why_unnameable(selection: DeviceSelection, device: Device) -> str:
    """Why an engine could not be shown this device; empty when it can. A driver knows no identity that we made up,
    and a slice has no number of its own."""
    if selection.naming is DeviceNaming.INDEX and device.id.startswith("MIG-"):
        return f"{device.id} is a MIG slice, and this engine takes devices by number: give it `naming: uuid`"
    if selection.naming is DeviceNaming.UUID and device.vendor in ("nvidia", "amd"):
        known = device.id.startswith(("GPU-", "MIG-")) and "@" not in device.id
        return "" if known else f"{device.id} has no UUID, and this engine takes devices by UUID"
    return ""


def unknown_placeholders(launch: LaunchSpec) -> tuple[str, ...]:
    """Things that look like a placeholder of ours and are none."""
    texts = (*launch.argv, *launch.env.values())
    found = {match for text in texts for match in re.findall(r"\$\{llmgw:[^}]*\}?", text)}
    known = {"${llmgw:port}", "${llmgw:host}", "${llmgw:weights}", PYTHON}
    known |= {f"${{llmgw:port:{name}}}" for name in launch.extra_ports}
    return tuple(sorted(found - known))
