"""Rules about the fleet: references to pools and kinds of routers, and profiles that no declared node could hold."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from llmgw import router_kinds
from llmgw.catalog import DEFAULT_POOL, Accelerators, Catalog, Node, NodeDevices, Profile
from llmgw.checking.raw import EACH, parts, text, texts
from llmgw.checking.sent import Sent
from llmgw.ids import ReplicaId
from llmgw.memory import format_mib
from llmgw.problems import Finding, Severity, did_you_mean, quoted
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
    for i, model in enumerate(catalog.models):
        if model.idle_timeout_s is not None and model.replicas.min == model.replicas.max:
            yield Finding(
                ("models", i, "idle_timeout_s"),
                f"min and max are both {model.replicas.min}, so nothing ever stops for being idle",
                "set replicas: {min: 0}, or leave it out",
                Severity.WARNING,
            )
        for j, profile in enumerate(model.profiles):
            if (reason := _never_fits(profile, catalog)) is not None:
                yield Finding(
                    ("models", i, "profiles", j),
                    f"no declared node could ever hold profile {profile.name}: {reason}",
                    "correct the profile, or the nodes' devices",
                    Severity.WARNING,
                )


def _limits(catalog: Catalog) -> Iterator[Finding]:
    """What of the models' routes a declared router cannot express."""
    models = [TableModel(name=m.name, aliases=m.aliases, state=ModelState.READY) for m in catalog.models]
    endpoints = [
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
    ]
    for i, router in enumerate(catalog.routers):
        for limit in router_kinds.limits(router.kind, models, endpoints):
            yield Finding(
                ("routers", i),
                f"{router.id} ({router.kind}) {limit}",
                "is that good enough? docs/routers.md says what each kind can",
                Severity.WARNING,
            )


def _never_fits(profile: Profile, catalog: Catalog) -> str | None:
    """Why no declared node can hold `profile`; None when one can, or when that is not known."""
    if not catalog.nodes:
        return None
    nodes = [node for node in catalog.nodes if node.pool == profile.pool]
    if not nodes:
        return f"no node is in pool {profile.pool}"
    if not profile.accelerators or any(not node.devices for node in nodes):
        return None
    if any(holds(devices, profile.accelerators) for devices in {node.devices for node in nodes}):
        return None
    asked = " + ".join(_asked(item) for item in profile.accelerators)
    return f"it asks {asked} on one node; {_largest(nodes)}"


def holds(devices: tuple[NodeDevices, ...], asked: tuple[Accelerators, ...]) -> bool:
    """Whether all of `asked` can be met at once.

    By Hall's theorem they can exactly if every subset of them finds enough devices that suit at least one of its
    members. Unknown memory may suit.
    """
    return all(
        sum(item.count for item in some)
        <= sum(device.count for device in devices if any(_suits(device, item) for item in some))
        for size in range(1, len(asked) + 1)
        for some in combinations(asked, size)
    )


def _suits(device: NodeDevices, asked: Accelerators) -> bool:
    kind_fits = asked.kind is None or asked.kind.casefold() == device.kind.casefold()
    if asked.memory_mib is None or device.memory_mib is None:
        return kind_fits
    return kind_fits and asked.memory_mib <= device.memory_mib


def _asked(item: Accelerators) -> str:
    memory = f" of {format_mib(item.memory_mib)}" if item.memory_mib else ""
    return f"{item.count} × {item.kind or 'any'}{memory}"


def _largest(nodes: list[Node]) -> str:
    """The node with the most devices, as an example of what there is."""
    largest = max(nodes, key=lambda node: sum(device.count for device in node.devices))
    there = ", ".join(
        f"{device.count} × {device.kind}" + (f" of {format_mib(device.memory_mib)}" if device.memory_mib else "")
        for device in largest.devices
    )
    return f"the largest, {largest.id}, has {there}"
