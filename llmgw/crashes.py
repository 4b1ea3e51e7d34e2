"""Whose fault a crash is: a start that fails on many nodes is the model's (`llmgw.attempts`), and a node on which many
models fail to start is the node's. Such a node gets no new replica for a while; what runs there stays.

Only a version that serves on another node says so: what serves nowhere may be broken itself. And where most nodes seem
at fault, none is: then it is what they are told to run. The road back: time, something that becomes ready there, or an
operator's `uncordon`.
"""

from collections.abc import Mapping

from llmgw import demand
from llmgw.draft import Draft
from llmgw.ids import ModelName, NodeId
from llmgw.nodes import NodeView
from llmgw.sentences import names_shown
from llmgw.wire import EngineState

MANY_MODELS = 3
"""Starts of so many models that fail on one node are the node's fault."""
WINDOW_S = 600.0
"""Failures longer ago say nothing about a node any more."""


def crashing_nodes(draft: Draft) -> tuple[NodeId, ...]:
    """Nodes that get no new replicas for now; each says why and until when."""
    blamed = {node: models for node, models in sorted(_failed(draft).items()) if _is_to_blame(draft, node, models)}
    if 2 * len(blamed) > len(draft.survey.nodes):
        return ()
    for node, models in blamed.items():
        until_s = sorted(models.values())[-MANY_MODELS] + WINDOW_S
        text = f"starts of {len(models)} models failed there ({names_shown(sorted(models))}): it gets no new replicas"
        draft.wait(f"node/{node}", "crashes", text, until_s)
    return tuple(blamed)


def _is_to_blame(draft: Draft, node: NodeId, models: Mapping[ModelName, float]) -> bool:
    view = draft.survey.of(node)
    if len(models) < MANY_MODELS or view is None:
        return False
    return not _came_up_since(draft, view, max(models.values()))


def _failed(draft: Draft) -> Mapping[NodeId, dict[ModelName, float]]:
    """By node the models whose start failed there lately though they serve elsewhere, and when last."""
    found: dict[NodeId, dict[ModelName, float]] = {}
    for model, failures in draft.failures.items():
        lately = [f for f in failures if not f.was_ready and f.at_s > draft.now_s - WINDOW_S]
        serving = [a for a in draft.of_model(model) if demand.is_serving(draft, a)] if lately else []
        for failure in lately:
            elsewhere = any(a.fingerprint == failure.fingerprint and a.node != failure.node for a in serving)
            if elsewhere and failure.at_s > draft.world.wishes.trusted.get(failure.node, 0.0):
                models = found.setdefault(failure.node, {})
                models[model] = max(failure.at_s, models.get(model, 0.0))
    return found


def _came_up_since(draft: Draft, view: NodeView, at_s: float) -> bool:
    ready = (r for r, row in view.rows.items() if row.state is EngineState.READY and r in draft.assignments)
    return any(draft.assignments[replica].created_s >= at_s for replica in ready)
