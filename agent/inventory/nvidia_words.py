"""What every form of `nvidia-smi` has in common: its complaints, and the cards it says it cannot reach. Pure."""

import re

from agent.inventory.seen import bus_id, first_lines

MIG_PARENT = "in MIG mode: its slices are the devices"

_LOST = re.compile(r"Unable to determine the device handle for gpu\s*(?P<bus>[0-9a-fA-F:.]+?):?\s+(?P<why>.*)", re.I)
_FAILURE = re.compile(
    r"Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found|couldn't communicate|command not found"
    r"|No such file or directory|GPU is lost|Unknown Error|Unable to determine|Insufficient Permissions",
    re.I,
)
CARD = re.compile(r"^GPU\s+(?P<index>\d+):\s*(?P<kind>.*?)\s*\(UUID:\s*(?P<uuid>\S+?)\)")


def failure(text: str, exit_code: int = 0) -> str:
    """What the tool complains of, or empty when it printed what it was asked for."""
    complaints = [line for line in text.splitlines() if _FAILURE.search(line)]
    if exit_code or (complaints and not CARD.search(text) and "<gpu " not in text):
        return "nvidia-smi: " + first_lines(" ".join(complaints) or text or f"exit code {exit_code}")
    return ""


def lost_cards(text: str) -> str:
    """Which cards the tool says it cannot reach, by their place on the bus, and why; empty when it says so of none."""
    lost = {bus_id(match["bus"]) or match["bus"]: first_lines(match["why"], 100) for match in _LOST.finditer(text)}
    return "; ".join(f"nvidia-smi: {bus}: {why}" for bus, why in lost.items())
