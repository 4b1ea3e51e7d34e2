"""Fleets and requests for the properties of placing, by hand and by Hypothesis, and what must hold of any plan."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from llmgw.ids import DeviceId, ModelName, NodeId, PoolName
from llmgw.placing.best import plan
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.kinds import is_kind
from llmgw.placing.need import Ask, Need, Request, Site, Slot
from llmgw.placing.placement import Placing

SHARE_MIB = 100


@dataclass(frozen=True, slots=True)
class Scene:
    """`held` was placed by an earlier plan over the same sites and models."""

    sites: tuple[Site, ...]
    requests: tuple[Request, ...]
    held: tuple[Holding, ...] = ()

    def planned(self) -> Placing:
        return plan(self.field(), self.requests)

    def field(self) -> Field:
        made = Field(self.sites, self.requests)
        made.load(replace(holding) for holding in self.held)
        return made


def site(name: str, count: int = 8, kind: str = "a", **fields: object) -> Site:
    slots = tuple(Slot(DeviceId(f"{name}-{i}"), kind, SHARE_MIB, SHARE_MIB) for i in range(count))
    return Site(NodeId(name), slots, **fields)  # type: ignore[arg-type]


def request(name: str, count: int, *needs: Need, rank: int = 0, **fields: object) -> Request:
    return Request(ModelName(name), needs or (whole(1),), count, rank, desired=count, **fields)  # type: ignore[arg-type]


def whole(count: int, *kinds: str, **fields: object) -> Need:
    return Need((Ask(count, kinds),), **fields)  # type: ignore[arg-type]


def applied(scene: Scene, placing: Placing) -> Scene:
    """The scene once the plan runs: what was asked for and placed is asked for no more."""
    gone = {d.holding.replica for d in placing.displaced}
    kept = [h for h in scene.held if h.replica not in gone]
    new = [
        replace(h, replica=f"{h.model}/{len(scene.held) + n}", is_new=False, waits=False)
        for n, h in enumerate(placing.starts)
    ]
    placed = Counter(h.model for h in placing.starts)
    placed.subtract(d.holding.model for d in placing.displaced)
    left = tuple(replace(r, count=r.count - placed[r.model]) for r in scene.requests)
    return Scene(scene.sites, left, (*kept, *new))


# --- what must hold ------------------------------------------------------------------------------------------------


def check(scene: Scene, placing: Placing) -> None:
    """No device beyond its claims, no memory beyond what is there, every limit kept, and everything accounted for."""
    index = {s.id: i for i, s in enumerate(sorted(scene.sites, key=lambda s: s.id))}
    sites = sorted(scene.sites, key=lambda s: s.id)
    models = {r.model: r for r in scene.requests}
    after = applied(scene, placing)
    field = scene.field()
    by_node: defaultdict[int, list[Holding]] = defaultdict(list)
    for holding in after.held:
        by_node[holding.node].append(holding)
    for node, held in by_node.items():
        _within(sites[node], field, node, held)
        per_model = Counter(h.model for h in held)
        for model, count in per_model.items():
            limit = models[model].max_per_node if model in models else None
            assert limit is None or count <= limit, f"{count} of {model} on {sites[node].id}"
        groups = defaultdict(set)
        for holding in held:
            if (asked := models.get(holding.model)) is not None and asked.group is not None:
                groups[asked.group].add(holding.model)
        assert all(len(members) == 1 for members in groups.values()), f"{dict(groups)} on {sites[node].id}"
    for start in placing.starts:
        _suits(sites[start.node], field, start, models[start.model].needs[start.way])
    for gone in placing.displaced:
        assert gone.holding.rank < models[gone.by].rank, f"{gone.holding.replica} gives way to its equal {gone.by}"
    for asked in scene.requests:
        again = sum(1 for d in placing.displaced if d.holding.model == asked.model)
        placed = sum(1 for h in placing.starts if h.model == asked.model)
        assert placed + placing.lacking.get(asked.model, 0) == asked.count + again, asked.model
    assert len(index) == len(sites)


def _within(site: Site, field: Field, node: int, held: Sequence[Holding]) -> None:
    taken: defaultdict[DeviceId, list[int | None]] = defaultdict(list)
    for holding in held:
        for position, mib in _claims(field, node, holding):
            taken[site.slots[position].id].append(mib)
    for slot in site.slots:
        claims = taken[slot.id]
        shares = [mib for mib in claims if mib is not None]
        assert len(claims) <= 1 or len(shares) == len(claims), f"{slot.id} is taken whole and again"
        most = slot.share_mib if slot.left_mib is None else slot.left_mib
        assert sum(shares) <= (most or 0) or not shares, f"{slot.id} is claimed beyond what it has"
        assert slot.left_mib is None or None not in claims, f"{slot.id} is not whole and is taken whole"
    if site.host_mib is not None:
        assert sum(h.host_mib for h in held) <= site.host_mib


def _claims(field: Field, node: int, holding: Holding) -> Iterable[tuple[int, int | None]]:
    slots = field.yard.bank_slots[node]
    for bank, mask in enumerate(holding.whole):
        for place in range(mask.bit_length()):
            if mask >> place & 1:
                yield slots[bank][place], None
    for bank, place, mib in holding.shares:
        yield slots[bank][place], mib


def _suits(site: Site, field: Field, start: Holding, need: Need) -> None:
    assert not site.closed
    assert site.pool == need.pool
    assert need.labels <= set(site.labels.items())
    assert not need.nodes or site.id in need.nodes
    claims = list(_claims(field, start.node, start))
    assert len(claims) == need.devices
    if len(need.asks) == 1:
        ask = need.asks[0]
        for position, mib in claims:
            assert mib == ask.claim_mib
            assert not ask.kinds or any(is_kind(kind, site.slots[position].kind) for kind in ask.kinds)


# --- any fleet -----------------------------------------------------------------------------------------------------

_KINDS = ("a", "b", "c")


@st.composite
def sites(draw: st.DrawFn, most: int = 8) -> tuple[Site, ...]:
    count = draw(st.integers(1, most))
    return tuple(
        site(
            f"n{i}",
            draw(st.sampled_from([0, 2, 4, 8])),
            draw(st.sampled_from(_KINDS)),
            pool=PoolName(draw(st.sampled_from(["default", "default", "q"]))),
            zone=draw(st.sampled_from(["x", "y", None])),
            labels=draw(st.sampled_from([{}, {"rack": "1"}])),
            host_mib=draw(st.sampled_from([100, 400])),
            closed=draw(st.sampled_from(["", "", "", "cordoned"])),
            weights=draw(st.sampled_from([frozenset(), frozenset({"w"})])),
        )
        for i in range(count)
    )


@st.composite
def needs(draw: st.DrawFn) -> Need:
    kinds = draw(st.sampled_from([(), ("a",), ("b",), ("a", "b")]))
    claim = draw(st.sampled_from([None, None, None, 30, 60]))
    count = 1 if claim else draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8]))
    asks = (Ask(count, kinds, claim_mib=claim, aligned=draw(st.sampled_from([False, False, True]))),) if count else ()
    return Need(
        asks,
        host_mib=draw(st.sampled_from([0, 0, 50, 120])),
        pool=PoolName(draw(st.sampled_from(["default", "default", "q"]))),
        labels=draw(st.sampled_from([frozenset(), frozenset(), frozenset({("rack", "1")})])),
        prefers=draw(st.sampled_from([frozenset(), frozenset({("rack", "1")})])),
        nodes=draw(st.sampled_from([frozenset(), frozenset(), frozenset({NodeId("n0"), NodeId("n1")})])),
    )


@st.composite
def requests(draw: st.DrawFn, most: int = 6) -> tuple[Request, ...]:
    return tuple(
        request(
            f"m{i}",
            draw(st.integers(0, 5)),
            *draw(st.lists(needs(), min_size=1, max_size=2)),
            rank=draw(st.integers(0, 2)),
            max_per_node=draw(st.sampled_from([None, None, 1, 2])),
            spread_zones=draw(st.booleans()),
            group=draw(st.sampled_from([None, None, None, "g"])),
            weights=("w", "w"),
        )
        for i in range(draw(st.integers(1, most)))
    )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A fleet with a history: some of it was placed before, under other numbers and ranks."""
    here, asked = draw(sites()), draw(requests())
    before = tuple(replace(r, count=draw(st.integers(0, r.count)), rank=draw(st.integers(0, 2))) for r in asked)
    past = applied(first := Scene(here, before), first.planned())
    have, ranks = Counter(h.model for h in past.held), {r.model: r.rank for r in asked}
    held = tuple(replace(h, rank=ranks[h.model]) for h in past.held)
    now = tuple(replace(r, count=max(0, r.count - have[r.model]) + draw(st.integers(0, 2))) for r in asked)
    lost = draw(st.sampled_from([None, None, "n0"]))
    after = tuple(replace(s, closed="lost") if s.id == lost else s for s in here)
    return Scene(after, now, held)
