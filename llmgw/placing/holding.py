"""What a replica holds on its node: devices by their place in a bank, shares of memory, main memory, processors."""

from dataclasses import dataclass

from llmgw.ids import ModelName


@dataclass(slots=True, eq=False)
class Holding:
    """One replica's place. `whole`: per bank a bit for each device; `shares`: (bank, place in it, MiB)."""

    replica: str
    model: ModelName
    rank: int
    """What it withstands: requests of a higher rank may displace it."""
    node: int
    whole: tuple[int, ...] = ()
    shares: tuple[tuple[int, int, int], ...] = ()
    host_mib: int = 0
    cpu_milli: int = 0
    units: float = 0.0
    """Devices, shared ones by the share."""
    way: int = 0
    """Which of its model's needs it meets."""
    is_new: bool = False
    """Decided by the plan in the making: moving it disturbs nobody."""
    leaves: bool = False
    """It serves until a newer replica of its model takes over: it counts for what is strict, and not for spread."""
    waits: bool = False
    """Some of what it holds is still being released."""
