"""Rules about the fleet: references to pools and kinds of routers, and profiles that no declared node could hold."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from llmgw import router_kinds
from llmgw.catalog import DEFAULT_POOL, Accelerators, Catalog, Model, Node, NodeDevices, Profile
from llmgw.checking.raw import EACH, parts, text, texts
from llmgw.checking.sent import Sent
from llmgw.ids import ReplicaId
from llmgw.memory import format_mib
from llmgw.placing.kinds import is_kind
from llmgw.problems import Finding, Severity, did_you_mean, quoted
from llmgw.sentences import are, counted
from llmgw.wire import Endpoint, ModelState, TableModel


def references(sent: Sent) -> Iterator[Finding]:
    """Pools and kinds of routers that do not exist."""
    pools = {name for _, name in texts(sent.raw, "pools", EACH, "name")} | {DEFAULT_POOL}
    named = (*texts(sent.raw, "nodes", EACH, "pool"), *texts(sent.raw, "models", EACH, "profiles", EACH, "pool"))
    for at, pool in named:
        if pool not in pools:
            yield Finding(at, f"there is no pool {quoted(pool)}", f"declare it in `pools`; {did_you_mean(pool, pools)}")
    for at, router in parts(sent.raw, "routers", EACH):
        settings = router.get("settings")
        given = {k: v for k, v in settings.items() if isinstance(v, str)} if isinstance(settings, Mapping) else {}
        for fault in router_kinds.faults(text(router, "kind") or "native", text(router, "url"), given):
            yield Finding((*at, *fault.field), fault.what, fault.mend)


def worth_a_look(catalog: Catalog) -> Iterator[Finding]:
    """Warnings about an accepted catalog."""
    if not catalog.models:
        yield Finding(
            ("models",), "there are no models: everything that runs is removed", "is that meant?", Severity.WARNING
        )
    yield from _limits(catalog)
    yield from _groups(catalog)
    places = _Places(catalog)
    for i, model in enumerate(catalog.models):
        if model.idle_timeout_s is not None and model.replicas.min == model.replicas.max:
            yield Finding(
                ("models", i, "idle_timeout_s"),
                f"min and max are both {model.replicas.min}, so nothing ever stops for being idle",
                "set replicas: {min: 0}, or leave it out",
                Severity.WARNING,
            )
        yield from _placing(i, model, catalog, places)
        for j, profile in enumerate(model.profiles):
            if (reason := _never_fits(profile, catalog, places)) is not None:
                yield Finding(
                    ("models", i, "profiles", j),
                    f"no declared node could ever hold profile {profile.name}: {reason}",
                    "correct the profile, or the nodes' devices",
                    Severity.WARNING,
                )


class _Place(NamedTuple):
    nodes: tuple[Node, ...]
    devices: frozenset[tuple[NodeDevices, ...]]
    """What a node of them has, each once."""


class _Places:
    """Where profiles may run, as far as is declared: worked out once for all that ask for the same."""

    def __init__(self, catalog: Catalog) -> None:
        self.known = frozenset(node.id for node in catalog.nodes)
        self._nodes = catalog.nodes
        self._found: dict[object, _Place] = {}

    def of(self, profile: Profile) -> _Place:
        asked = (profile.pool, profile.nodes, frozenset(profile.labels.items()))
        if asked not in self._found:
            nodes = tuple(node for node in self._nodes if may_run_on(profile, node))
            self._found[asked] = _Place(nodes, frozenset(node.devices for node in nodes))
        return self._found[asked]


def _placing(i: int, model: Model, catalog: Catalog, places: _Places) -> Iterator[Finding]:
    """Rules about places that nothing can meet as far as is declared; nodes may still be added by order."""
    known = places.known
    for j, profile in enumerate(model.profiles):
        at = ("models", i, "profiles", j)
        strangers = sorted(set(profile.nodes) - known) if catalog.nodes else []
        if strangers:
            what = (
                f"{', '.join(map(quoted, strangers))} in `nodes` {'is' if len(strangers) == 1 else 'are'} not declared"
            )
            yield Finding((*at, "nodes"), what, did_you_mean(strangers[0], known), Severity.WARNING)
    if model.max_per_node is not None and catalog.nodes:
        count = len({node.id for profile in model.profiles for node in places.of(profile).nodes})
        if model.replicas.min > count * model.max_per_node:
            yield Finding(
                ("models", i, "max_per_node"),
                f"{are(model.replicas.min, 'replica')} wanted, and {counted(count, 'declared node')} may have "
                f"{model.max_per_node} each",
                "raise it, lower replicas, or declare more nodes",
                Severity.WARNING,
            )
    group = model.exclusive_group
    if group is not None and sum(1 for other in catalog.models if other.exclusive_group == group) == 1:
        yield Finding(
            ("models", i, "exclusive_group"),
            f"{model.name} is alone in group {quoted(group)}, so it keeps apart from nobody",
            "name the group at the other models too",
            Severity.WARNING,
        )


def _groups(catalog: Catalog) -> Iterator[Finding]:
    """Groups of which more models are to run than there are declared nodes to keep them apart on."""
    groups: dict[str, list[int]] = {}
    for i, model in enumerate(catalog.models):
        if model.exclusive_group is not None and model.replicas.min > 0:
            groups.setdefault(model.exclusive_group, []).append(i)
    for group, members in groups.items() if catalog.nodes else ():
        profiles = [profile for i in members for profile in catalog.models[i].profiles]
        places = sum(1 for node in catalog.nodes if any(may_run_on(profile, node) for profile in profiles))
        if len(members) > places:
            yield Finding(
                ("models", members[-1], "exclusive_group"),
                f"{len(members)} models of group {quoted(group)} are to run, no two on one node, and "
                f"{counted(places, 'declared node')} may have them",
                "declare more nodes, let some start at 0 replicas, or take some out of the group",
                Severity.WARNING,
            )


def may_run_on(profile: Profile, node: Node) -> bool:
    """Whether pool, list of nodes and required labels allow it."""
    listed = not profile.nodes or node.id in profile.nodes
    return node.pool == profile.pool and listed and profile.labels.items() <= node.labels.items()


def _limits(catalog: Catalog) -> Iterator[Finding]:
    """What of the models' routes a declared router cannot express."""
    kinds = {router.kind for router in catalog.routers}
    limits = {kind: router_kinds.limits(kind, _rows(catalog), _endpoints(catalog)) for kind in kinds}
    for i, router in enumerate(catalog.routers):
        for limit in limits[router.kind]:
            yield Finding(
                ("routers", i),
                f"{router.id} ({router.kind}) {limit}",
                "is that good enough? docs/routers.md says what each kind can",
                Severity.WARNING,
            )


def _rows(catalog: Catalog) -> Iterator[TableModel]:
    return (TableModel(name=m.name, aliases=m.aliases, state=ModelState.READY) for m in catalog.models)


def _endpoints(catalog: Catalog) -> Iterator[Endpoint]:
    """One for each profile, as routers would be told it."""
    return (
        Endpoint(
            id=ReplicaId(profile.name),
            url="",
            models=(model.name,),
            served_name=model.name,
            engine=profile.engine,
            weight=profile.weight,
            priority=profile.priority,
        )
        for model in catalog.models
        for profile in model.profiles
    )


def _never_fits(profile: Profile, catalog: Catalog, places: _Places) -> str | None:
    """Why no declared node can hold `profile`; None when one can, or when that is not known."""
    if not catalog.nodes:
        return None
    nodes, kinds = places.of(profile)
    if not nodes and all(node.pool != profile.pool for node in catalog.nodes):
        return f"no node is in pool {profile.pool}"
    if not nodes and places.known.issuperset(profile.nodes):
        labels = ", ".join(f"{key}={value}" for key, value in sorted(profile.labels.items()))
        wanted = " and ".join([*(["is in its list"] if profile.nodes else []), *([f"has {labels}"] if labels else [])])
        return f"no node of pool {profile.pool} {wanted}"
    if not nodes:
        return None
    if not profile.accelerators or () in kinds:
        return None
    share = catalog.policy.max_shared_percent
    if any(holds(devices, profile.accelerators, share) for devices in kinds):
        return None
    asked = " + ".join(_asked(item) for item in profile.accelerators)
    return f"it asks {asked} on one node; {_largest(nodes)}"


def holds(devices: tuple[NodeDevices, ...], asked: tuple[Accelerators, ...], shared_percent: int = 100) -> bool:
    """Whether all of `asked` can be met at once.

    By Hall's theorem they can exactly if every subset of them finds enough devices that suit at least one of its
    members. Unknown memory may suit.
    """
    return all(
        sum(item.count for item in some)
        <= sum(device.count for device in devices if any(_suits(device, item, shared_percent) for item in some))
        for size in range(1, len(asked) + 1)
        for some in combinations(asked, size)
    )


def _suits(device: NodeDevices, asked: Accelerators, shared_percent: int) -> bool:
    kind_fits = asked.kind is None or is_kind(asked.kind, device.kind, asked.count)
    if device.memory_mib is None:
        return kind_fits
    fits = asked.memory_mib is None or asked.memory_mib <= device.memory_mib
    return kind_fits and fits and (asked.claim_mib or 0) <= device.memory_mib * shared_percent // 100


def _asked(item: Accelerators) -> str:
    memory = f" of {format_mib(item.memory_mib)}" if item.memory_mib else ""
    claim = f"{format_mib(item.claim_mib)} each of " if item.claim_mib else ""
    return f"{claim}{item.count} × {item.kind or 'any'}{memory}"


def _largest(nodes: Sequence[Node]) -> str:
    """The node with the most devices, as an example of what there is."""
    largest = max(nodes, key=lambda node: sum(device.count for device in node.devices))
    there = ", ".join(
        f"{device.count} × {device.kind}" + (f" of {format_mib(device.memory_mib)}" if device.memory_mib else "")
        for device in largest.devices
    )
    return f"the largest, {largest.id}, has {there}"
