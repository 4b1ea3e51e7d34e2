"""Sentences about what goes on at a node that takes nothing new, or is silent: what is left on it, what that waits for,
and until when."""

from collections.abc import Iterator, Sequence

from llmgw.catalog import Policy
from llmgw.demand import desired
from llmgw.ids import ModelName
from llmgw.nodes import NodeState, NodeView
from llmgw.sentences import counted, lasting, names_shown
from llmgw.showing.scene import Scene
from llmgw.world import Assignment

MAX_MODELS = 8


def emptying_sentences(scene: Scene, view: NodeView) -> Iterator[str]:
    """Nothing for a node that is healthy and open."""
    mine = scene.by_node.get(view.node.id, ())
    if view.is_silent:
        yield from _silent(scene, view, mine)
    elif view.drain is not None or view.leaving:
        yield from _emptied(scene, view, mine)
    elif view.cordoned and mine:
        yield f"What runs on it goes on; `llmgw drain {view.node.id}` would empty it."


def _emptied(scene: Scene, view: NodeView, mine: Sequence[Assignment]) -> Iterator[str]:
    if not mine:
        done = "it is forgotten in a moment" if view.leaving else "it is empty, and may be worked on"
        yield f"Nothing is left on it: {done}."
        return
    going = [a.replica for a in mine if a.stop is not None]
    staying = [a for a in mine if a.stop is None]
    until = "another serves in its place" if len(staying) == 1 else "others serve in their places"
    parts = (
        f"{len(going)} on the way out ({names_shown(going)})" if going else "",
        f"{len(staying)} until {until} ({names_shown([a.replica for a in staying])})" if staying else "",
    )
    yield f"{counted(len(mine), 'replica')} left on it: {', '.join(part for part in parts if part)}."
    yield from _elsewhere(scene, view, sorted({a.model for a in staying}))


def _elsewhere(scene: Scene, view: NodeView, models: Sequence[ModelName]) -> Iterator[str]:
    """How far each model's replicas are that come in place of those on the node."""
    for model in models[:MAX_MODELS]:
        new = [a for a in scene.by_model.get(model, ()) if a.node != view.node.id and a.stop is None]
        coming = [a for a in new if not scene.is_published(a.replica)]
        waiting = scene.waiting("model", model)
        if coming:
            yield f"{model}: {', '.join(f'{a.replica} is {scene.state(a)} on {a.node}' for a in coming[:MAX_MODELS])}."
        elif waiting is not None:
            yield f"{model} has waited for {lasting(scene.age_s(waiting.since_s))}: {waiting.text.rstrip('.')}."
    if len(models) > MAX_MODELS:
        yield f"And {counted(len(models) - MAX_MODELS, 'more model')}."


def _silent(scene: Scene, view: NodeView, mine: Sequence[Assignment]) -> Iterator[str]:
    silence = scene.world.silence.get(f"node/{view.node.id}")
    policy = scene.world.catalog.policy if scene.world.catalog is not None else Policy()
    if view.state is NodeState.SUSPECT and silence is not None and not view.frozen:
        left_s = scene.left_s(silence.since_s + policy.lost_after_s)
        when = f"in {lasting(left_s)}" if left_s is not None else "in a moment"
        yield f"If it stays silent, it counts as lost {when}, and its replicas are placed elsewhere."
    if view.state is not NodeState.LOST:
        return
    for model in sorted({a.model for a in mine})[:MAX_MODELS]:
        yield _replaced(scene, view, model)
    yield (
        f"It is waited for without an end; `llmgw nodes remove {view.node.id}` forgets a machine that does not return."
    )


def _replaced(scene: Scene, view: NodeView, model: ModelName) -> str:
    """How a model stands without the node."""
    found = None if scene.world.catalog is None else scene.world.catalog.model(model)
    wanted = 0 if found is None else desired(scene.world, found, scene.now_s)
    others = [a for a in scene.by_model.get(model, ()) if a.node != view.node.id]
    ready = sum(1 for a in others if scene.is_published(a.replica))
    said = f"{model} was on it: {ready} of {wanted} wanted {'is' if wanted == 1 else 'are'} ready elsewhere"
    waiting = scene.waiting("model", model)
    return f"{said}; it waits: {waiting.text.rstrip('.')}." if waiting is not None and ready < wanted else f"{said}."
