"""Where something may run, as files made for Kubernetes say it: node selectors and affinities, as labels and lists of
nodes that a profile has. What asks for one of several values cannot be a label, and is told.
"""

from dataclasses import dataclass, field
from typing import Literal

from llmgw.importing.account import Part
from llmgw.importing.draft import identifier
from llmgw.importing.shares import UNKNOWN_SHARE
from llmgw.problems import quoted

HOSTNAMES = ("kubernetes.io/hostname", "metadata.name")
PRODUCT = "nvidia.com/gpu.product"
SHARED = "-SHARED"
"""Ends the kind of devices that NVIDIA's operator gives out in shares of time."""
"""The label by which NVIDIA's operator tells the kind of a node's devices."""
THE_LABELS = "give the nodes in the catalog these labels"
THE_NODES = "they are to be called so in the catalog"
ONE_VALUE = "a label has one value: name the nodes in `nodes`, or give them a label of their own"
ONE_TERM = "one of several terms cannot be asked for: give a profile to each"


@dataclass(slots=True)
class Places:
    """What a profile asks of its node. `kind`: of devices, where a label tells it."""

    labels: dict[str, str] = field(default_factory=dict)
    prefers: dict[str, str] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    kind: str | None = None


def places(spec: Part) -> Places:
    """`nodeName`, `nodeSelector`, `nodeSelectorTerms` and `affinity` of a pod, each part carried or told as lost."""
    found = Places()
    if (name := spec.text("nodeName")) is not None:
        _listed(found, [name], spec.part("nodeName"))
    for item in spec.part("nodeSelector").items():
        if (value := item.as_text()) is not None:
            _label(found, item.key, value, item)
    _terms(found, spec.part("nodeSelectorTerms"))
    node = spec.part("affinity", "nodeAffinity")
    _terms(found, node.part("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
    for item in node.part("preferredDuringSchedulingIgnoredDuringExecution").items():
        item.lose("weight", "labels that are preferred count alike")
        for expression in item.part("preference", "matchExpressions").items():
            _expression(found, expression, "prefers")
    for other in ("podAffinity", "podAntiAffinity"):
        spec.part("affinity").lose(
            other, "replicas keep apart by themselves; `max_per_node` and `spread_zones` say more"
        )
    if found.labels or found.prefers:
        spec.account.assume(spec.at, THE_LABELS)
    if found.nodes:
        spec.account.assume(spec.at, f"{', '.join(map(quoted, found.nodes[:8]))}: {THE_NODES}")
    return found


def _terms(found: Places, terms: Part) -> None:
    """Of several terms one is enough there, which no profile can say."""
    listed = list(terms.items())
    if len(listed) > 1:
        terms.lose_all(ONE_TERM)
        return
    for term in listed:
        for fields in ("matchExpressions", "matchFields"):
            for expression in term.part(fields).items():
                _expression(found, expression, "labels")


def _expression(found: Places, expression: Part, what: Literal["labels", "prefers"]) -> None:
    key, operator = expression.peek("key"), expression.peek("operator")
    values = expression.part("values").raw
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    usable = operator == "In" and texts and len(texts) == len(values if isinstance(values, list) else ())
    if not usable or (len(texts) > 1 and (key not in HOSTNAMES or what == "prefers")):
        expression.lose_all(
            ONE_VALUE if operator == "In" else f"{operator or 'what it asks'} cannot be asked of labels"
        )
        return
    expression.carry("key", "operator", "values")
    if key in HOSTNAMES and what == "labels":
        _listed(found, texts, expression)
    elif what == "labels":
        _label(found, key, texts[0], expression)
    else:
        found.prefers[key] = texts[0]


def _listed(found: Places, names: list[str], part: Part) -> None:
    """On these nodes only; of two lists, what is on both."""
    ids = [identifier(name) for name in names]
    if ids != names:
        part.account.drop(part.at, "no id that a node can have")
        return
    both = [name for name in found.nodes if name in ids] if found.nodes else ids
    if not both:
        part.account.drop(part.at, "no node is on both of its lists")
        return
    found.nodes = both


def _label(found: Places, key: str, value: str, part: Part) -> None:
    if key in HOSTNAMES:
        _listed(found, [value], part)
    elif key == PRODUCT:
        found.kind = value.removesuffix(SHARED)[:64]
        if value.endswith(SHARED):
            part.account.lose(part.at, UNKNOWN_SHARE, SHARED)
    else:
        found.labels[key] = value
