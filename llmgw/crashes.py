"""Whose fault a crash is: a start that fails on many nodes is the model's (`llmgw.attempts`), and a node on which many
models fail to start is the node's. Such a node gets no new replica for a while; what runs there stays.

The road back: time, something that becomes ready there, or an operator's `uncordon`.
"""

from collections.abc import Mapping

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
    found: list[NodeId] = []
    for node, models in sorted(_failed(draft).items()):
        view = draft.survey.of(node)
        if len(models) < MANY_MODELS or view is None or _came_up_since(draft, view, max(models.values())):
            continue
        until_s = sorted(models.values())[-MANY_MODELS] + WINDOW_S
        text = f"starts of {len(models)} models failed there ({names_shown(sorted(models))}): it gets no new replicas"
        draft.wait(f"node/{node}", "crashes", text, until_s)
        found.append(node)
    return tuple(found)


def _failed(draft: Draft) -> Mapping[NodeId, dict[ModelName, float]]:
    """By node the models whose start failed there lately, and when last."""
    found: dict[NodeId, dict[ModelName, float]] = {}
    for model, failures in draft.failures.items():
        for failure in failures:
            since_s = max(draft.now_s - WINDOW_S, draft.world.wishes.trusted.get(failure.node, 0.0))
            if not failure.was_ready and failure.at_s > since_s:
                models = found.setdefault(failure.node, {})
                models[model] = max(failure.at_s, models.get(model, 0.0))
    return found


def _came_up_since(draft: Draft, view: NodeView, at_s: float) -> bool:
    ready = (r for r, row in view.rows.items() if row.state is EngineState.READY and r in draft.assignments)
    return any(draft.assignments[replica].created_s >= at_s for replica in ready)
