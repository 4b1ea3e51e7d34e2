"""Sentences about places that no node can ever offer: which demand of a profile nothing in the fleet meets, what there
is instead, and how to mend it. What is only taken at present is no matter of this file.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from llmgw.catalog import Accelerators, Model, Profile
from llmgw.memory import format_mib
from llmgw.nodes import NodeView
from llmgw.placing.kinds import is_kind
from llmgw.problems import did_you_mean
from llmgw.sentences import names_shown
from llmgw.showing.scene import Scene
from llmgw.wire import Device

BY_ITSELF = "A device that becomes free, another node, or a smaller demand in the profile changes that by itself."


def place_sentences(scene: Scene, model: Model) -> Iterator[str]:
    """What would give the model a place; of demands that nothing meets, what there is instead."""
    said = [(profile, _never(scene, profile)) for profile in model.profiles]
    for profile, why in said:
        if why:
            yield f"Profile {profile.name} fits no node as it is: {why}{'' if why.endswith('?') else '.'}"
    if all(why for _, why in said):
        yield "It goes on by itself when such a node is there; until then only an edit of the catalog changes that."
    else:
        yield BY_ITSELF
        waiting = scene.world.waiting.values()
        if blamed := sorted(w.subject.removeprefix("node/") for w in waiting if w.code == "crashes"):
            yield f"Left out for crashes: {names_shown(blamed)}; they come back with time, or by `llmgw uncordon NODE`."
    unheard = [view.node.id for view in scene.survey.nodes.values() if view.seen is None]
    if unheard:
        yield f"Not heard yet, so not counted here: {names_shown(unheard)}."


def _never(scene: Scene, profile: Profile) -> str:
    """The first demand that no node meets even when it is empty, and what there is; empty when some node does."""
    nodes = [view for view in scene.survey.nodes.values() if view.seen is not None]
    if not nodes:
        return ""
    for narrow in _NARROWED:
        left, why = narrow(profile, nodes)
        if not left:
            return why
        nodes = left
    for asked in profile.accelerators:
        if why := _lacks(asked, nodes, scene):
            return why
    return ""


Narrowed = tuple[list[NodeView], str]
"""The nodes that meet a demand, and what to say when none does."""


def _pool(profile: Profile, nodes: Sequence[NodeView]) -> Narrowed:
    pools = sorted({view.node.pool for view in nodes})
    left = [view for view in nodes if view.node.pool == profile.pool]
    return left, f"no node is in pool {profile.pool}; nodes are in {', '.join(pools)}"


def _listed(profile: Profile, nodes: Sequence[NodeView]) -> Narrowed:
    left = [view for view in nodes if not profile.nodes or view.node.id in profile.nodes]
    there = [view.node.id for view in nodes]
    meant = did_you_mean(profile.nodes[0], there) if profile.nodes else ""
    return left, f"no node of pool {profile.pool} is on its list ({names_shown(profile.nodes)}); {meant}"


def _labels(profile: Profile, nodes: Sequence[NodeView]) -> Narrowed:
    left = [view for view in nodes if profile.labels.items() <= view.node.labels.items()]
    missing = [(k, v) for k, v in sorted(profile.labels.items()) if not any(n.node.labels.get(k) == v for n in nodes)]
    if not missing:
        return left, f"no node of pool {profile.pool} has all of its labels together"
    key, value = missing[0]
    values = sorted({view.node.labels[key] for view in nodes if key in view.node.labels})
    there = f"{key} is {', '.join(values)} there" if values else f"no node there has a label {key}"
    return left, f"no node of pool {profile.pool} has the label {key}={value}; {there}"


_NARROWED: tuple[Callable[[Profile, Sequence[NodeView]], Narrowed], ...] = (_pool, _listed, _labels)


def _lacks(asked: Accelerators, nodes: Sequence[NodeView], scene: Scene) -> str:
    """What of one demand for devices none of `nodes` meets."""
    of_kind = [_of_kind(asked, view) for view in nodes]
    if not any(of_kind):
        everywhere = [view for view in scene.survey.nodes.values() if view.seen is not None]
        return _no_such_kind(asked, nodes, everywhere)
    least = max(asked.memory_mib or 0, asked.claim_mib or 0)
    sizes = [d.memory_mib for devices in of_kind for d in devices if d.memory_mib is not None]
    if least and sizes and max(sizes) < least:
        largest = f"the largest {_named(asked)} there has {max(sizes) / 1024:.4g} GiB"
        return f"it asks {format_mib(least)} on a device, and {largest}"
    if least and not sizes:
        return f"it asks for memory, and how much the {_named(asked, 's')} there have is not known"
    fit = [sum(1 for d in devices if not least or (d.memory_mib or 0) >= least) for devices in of_kind]
    if max(fit) < asked.count:
        return f"it asks {asked.count} {_named(asked, 's')} on one node, and no node has more than {max(fit)}"
    return ""


def _of_kind(asked: Accelerators, view: NodeView) -> list[Device]:
    listed = frozenset(asked.devices)
    return [
        device
        for device in _devices(view)
        if is_kind(asked.kind, device.kind, asked.count) and (not listed or device.id in listed)
    ]


def _devices(view: NodeView) -> Sequence[Device]:
    return () if view.seen is None else view.seen.inventory.devices


def _named(asked: Accelerators, ending: str = "") -> str:
    return f"device{ending} of kind {asked.kind}" if asked.kind else f"device{ending}"


def _no_such_kind(asked: Accelerators, nodes: Sequence[NodeView], everywhere: Sequence[NodeView]) -> str:
    if asked.devices:
        return f"none of the devices on its list ({names_shown(asked.devices)}) is there"
    here = Counter(device.kind for view in nodes for device in _devices(view))
    other = [view for view in everywhere if any(is_kind(asked.kind, d.kind, asked.count) for d in _devices(view))]
    if other:
        where = names_shown(sorted({f"pool {view.node.pool}" for view in other}))
        return f"no node that it may run on has a {_named(asked)}; there are some in {where}"
    if asked.kind is None or not any(_devices(view) for view in everywhere):
        return "no node has any device"
    kinds = here or Counter(device.kind for view in everywhere for device in _devices(view))
    said = ", ".join(f"{kind} ({number})" for kind, number in sorted(kinds.items()))
    meant = did_you_mean(asked.kind, _names_of(kinds))
    close = f"; {meant}" if meant.startswith("did you") else ""
    return f"nothing in the fleet is a {_named(asked)}; there is {said}{close}"


def _names_of(kinds: Counter[str]) -> set[str]:
    """What a kind may be asked for by: its whole name, or a word of it."""
    return {
        name for kind in kinds for name in (kind, *(word for word in re.findall(r"[^\W_]+", kind) if len(word) > 1))
    }
