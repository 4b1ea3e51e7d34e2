"""What is asked of a node, and who asks: the input of a placement, as plain values.

Amounts are whole numbers: memory in MiB, processors in thousandths. Nothing here knows the catalog or the world.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llmgw.ids import DeviceId, ModelName, NodeId, PoolName

Label = tuple[str, str]
Identity = Literal["", "slice", "bare"]
"""How a device can be named: by its UUID and by its number; a slice by its UUID alone, a bare one by its number."""
DEFAULT_POOL = PoolName("default")


@dataclass(frozen=True, slots=True)
class Ask:
    """`count` devices of one sort. `claim_mib` None: each whole and alone; else so much of each one's memory."""

    count: int
    kinds: tuple[str, ...] = ()
    """One of these; empty: any."""
    memory_mib: int | None = None
    """Least memory of each device."""
    claim_mib: int | None = None
    devices: frozenset[DeviceId] = frozenset()
    """Only these; empty: any."""
    aligned: bool = False
    """They lie in one group of the next power of two, as islands of fast links do."""
    vendors: tuple[str, ...] = ()
    """One of these; empty: any."""
    barred: frozenset[tuple[str, "Identity"]] = frozenset()
    """Vendors and identities of devices that could not be named to who asks."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one way to run asks of one node, all together. Equal needs fit equally."""

    asks: tuple[Ask, ...] = ()
    host_mib: int = 0
    cpu_milli: int = 0
    pool: PoolName = DEFAULT_POOL
    labels: frozenset[Label] = frozenset()
    """Every one of them is the node's."""
    prefers: frozenset[Label] = frozenset()
    """Each one that the node has counts for it."""
    nodes: frozenset[NodeId] = frozenset()
    """Only these; empty: any."""

    @property
    def devices(self) -> int:
        return sum(ask.count for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Request:
    """`count` replicas of a model. `needs`: its ways to run, in order of preference."""

    model: ModelName
    needs: tuple[Need, ...]
    count: int
    rank: int = 0
    """Higher comes first, and may displace what is strictly lower."""
    urgent: int | None = None
    """So many of them may displace others; None: all."""
    asked_s: float = 0.0
    """Of equal ranks the one that was asked for first comes first; 0: wanted at any rate."""
    desired: int = 0
    """Replicas the model is to have; 0: as many as are asked for here."""
    weights: tuple[str | None, ...] = ()
    """Per need: the weights it loads, where they are worth looking for."""
    max_per_node: int | None = None
    spread_zones: bool = False
    group: str | None = None
    """Models of one group never share a node."""
    avoid: frozenset[NodeId] = frozenset()
    """Where it failed: other nodes come first."""
    never: frozenset[NodeId] = frozenset()


def has_several_measures(request: Request) -> bool:
    """Whether it asks for anything but whole devices."""
    return any(
        need.host_mib or need.cpu_milli or not need.asks or any(ask.claim_mib is not None for ask in need.asks)
        for need in request.needs
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """A device of a site. `share_mib`: what claims may take together of such a device's memory; None where that is
    unknown. `left_mib`: what they may take of this one, where it is not as good as new."""

    id: DeviceId
    kind: str
    memory_mib: int | None = None
    share_mib: int | None = None
    vendor: str = ""
    left_mib: int | None = None
    """None: it is in order and nobody else is on it; else it can be shared as far as this, and never taken whole."""
    trouble: str = ""
    """Why, in words that follow a number of devices: `out of order or quarantined`."""
    others_mib: int = 0
    """What others hold of it, where that is its trouble."""
    kept_mib: int = 0
    """What driver and firmware keep of it, where that is worth telling; in no other figure here."""
    identity: Identity = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A node as placement sees it, empty of our replicas. `slots` are in order of their index."""

    id: NodeId
    slots: tuple[Slot, ...] = ()
    pool: PoolName = DEFAULT_POOL
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    host_mib: int | None = None
    cpu_milli: int | None = None
    weights: frozenset[str] = frozenset()
    """Sources whose files it has."""
    closed: str = ""
    """Why it takes nothing new, in words that follow its number: `2 nodes cordoned`; empty: it does."""
    blind: str = ""
    """Why it takes nothing that asks for a device."""
