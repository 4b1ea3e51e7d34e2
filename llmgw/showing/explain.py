"""Why it is so: what is wanted of a model, replica, node, router or the fleet, what is there, what waits for what, and
what would change it. Sentences for people, made from the same facts that the deciding uses."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from llmgw import members
from llmgw.ids import ModelName, NodeId, ReplicaId, RouterId
from llmgw.sentences import cut, unknown
from llmgw.showing.explain_fleet import fleet_sentences
from llmgw.showing.explain_model import model_sentences
from llmgw.showing.explain_node import node_sentences, router_sentences
from llmgw.showing.explain_replica import gone_sentences, replica_sentences, unclaimed_sentences
from llmgw.showing.paging import View
from llmgw.showing.scene import Scene
from llmgw.world import Failure, World

MAX_SENTENCES = 60
MAX_SENTENCE_CHARS = 600
MAX_LOG_LINES = 20


class LastFailure(View):
    """The newest failed attempt that is remembered: the node keeps its whole log."""

    replica: ReplicaId
    node: NodeId
    age_s: float
    text: str


class Explanation(View):
    subject: str
    """`model/NAME`, `replica/ID`, `node/ID`, `router/ID` or `fleet`; as it was asked when nothing is known of it."""
    known: bool
    sentences: tuple[str, ...]
    log_tail: tuple[str, ...] = ()
    """The last lines of the engine's log, where an attempt failed."""
    last_failure: LastFailure | None = None
    """Of a model, or of a replica that is gone."""


def explain(world: World, subject: str, now_s: float) -> Explanation:
    """Everything there is to say about `subject`: its kind and name, or a bare name (models and aliases first); with
    an empty one, about the fleet."""
    scene = Scene.of(world, now_s)
    kind, _, name = subject.partition("/")
    if kind in _KINDS and (said := _KINDS[kind](scene, name)) is not None:
        return said
    for of_kind in _KINDS.values():
        if (said := of_kind(scene, subject)) is not None:
            return said
    sentence = unknown("model, replica, node or router", name if kind in _KINDS else subject, _names(world))
    return Explanation(subject=cut(subject), known=False, sentences=(sentence,))


def _model(scene: Scene, name: str) -> Explanation | None:
    model = members.model_of(scene.world, name)
    found = ModelName(name) if model is None else model.name
    if model is None and found not in scene.by_model:
        return None
    failures = scene.world.failures.get(found, ())
    log = next((f.log_tail for f in reversed(failures) if f.log_tail), ())
    made = _made(f"model/{found}", model_sentences(scene, found, model), log)
    return made.model_copy(update={"last_failure": _last(scene, failures[-1])}) if failures else made


def _replica(scene: Scene, name: str) -> Explanation | None:
    replica = ReplicaId(name)
    assignment = scene.world.assignments.get(replica)
    if assignment is None:
        sentences = unclaimed_sentences(scene, replica)
        return _made(f"replica/{name}", sentences) if sentences else _gone(scene, replica)
    row = scene.row(assignment)
    return _made(f"replica/{name}", replica_sentences(scene, assignment), () if row is None else row.log_tail)


def _gone(scene: Scene, replica: ReplicaId) -> Explanation | None:
    """A replica that failed and is no more: what is remembered of it."""
    mine = (f for failures in scene.world.failures.values() for f in failures if f.replica == replica)
    failure = max(mine, key=lambda f: f.at_s, default=None)
    if failure is None:
        return None
    made = _made(f"replica/{replica}", gone_sentences(scene, failure), failure.log_tail)
    return made.model_copy(update={"last_failure": _last(scene, failure)})


def _last(scene: Scene, failure: Failure) -> LastFailure:
    age_s = scene.age_s(failure.at_s)
    return LastFailure(replica=failure.replica, node=failure.node, age_s=age_s, text=cut(failure.text))


def _node(scene: Scene, name: str) -> Explanation | None:
    view = scene.survey.of(NodeId(name))
    return None if view is None else _made(f"node/{name}", node_sentences(scene, view))


def _router(scene: Scene, name: str) -> Explanation | None:
    router = members.router(scene.world, RouterId(name))
    return None if router is None else _made(f"router/{name}", router_sentences(scene, router))


def _fleet(scene: Scene, name: str) -> Explanation | None:
    """The fleet itself: asked for by its name, as `fleet`, or with nothing."""
    if name not in ("", "fleet", scene.world.fleet):
        return None
    return _made("fleet", fleet_sentences(scene))


_KINDS: Mapping[str, Callable[[Scene, str], Explanation | None]] = {
    "model": _model,
    "replica": _replica,
    "node": _node,
    "router": _router,
    "fleet": _fleet,
    "wake": _model,
}


def _made(subject: str, sentences: Iterable[str], log: Sequence[str] = ()) -> Explanation:
    said = [cut(sentence, MAX_SENTENCE_CHARS) for sentence in sentences]
    if len(said) > MAX_SENTENCES:
        said = [*said[:MAX_SENTENCES], f"and {len(said) - MAX_SENTENCES} more"]
    lines = tuple(cut(line) for line in log[-MAX_LOG_LINES:])
    return Explanation(subject=subject, known=True, sentences=tuple(said), log_tail=lines)


def _names(world: World) -> list[str]:
    gone = {f.replica for failures in world.failures.values() for f in failures}
    return [*members.model_names(world), *{*world.assignments, *gone}, *members.nodes(world), *members.routers(world)]
