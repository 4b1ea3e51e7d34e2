"""Sentences about one model: wanted, there, waiting, failed, and what would change it."""

from collections.abc import Iterator

from llmgw.catalog import Model
from llmgw.demand import desired
from llmgw.ids import ModelName
from llmgw.sentences import counted, lasting
from llmgw.showing.explain_place import place_sentences
from llmgw.showing.explain_replica import replica_line
from llmgw.showing.explain_waiting import waiting_sentences
from llmgw.showing.fleet_rows import override
from llmgw.showing.scene import Scene
from llmgw.world import Failure

MAX_REPLICAS = 20


def model_sentences(scene: Scene, name: str, model: Model | None) -> Iterator[str]:
    """`model` None: it left the catalog and something of it is still there."""
    if model is None:
        yield f"{name} is not in the catalog: nothing is wanted of it."
    else:
        yield _wanted(scene, model)
        yield _published(scene, model)
        yield from _versions(scene, model)
        yield from _names(scene, model)
    mine = scene.by_model.get(ModelName(name), ())
    if not mine:
        yield "Nothing of it is assigned anywhere."
    yield from (replica_line(scene, a) for a in mine[:MAX_REPLICAS])
    if len(mine) > MAX_REPLICAS:
        yield f"And {len(mine) - MAX_REPLICAS} more replicas; `llmgw replicas` has them all."
    yield from _failures(scene, scene.world.failures.get(ModelName(name), ()))
    if (waiting := scene.waiting("model", name)) is not None:
        yield from waiting_sentences(scene, waiting, name)
        if model is not None and waiting.code == "no_place":
            yield from place_sentences(scene, model)
    if (overdue := scene.waiting("wake", name)) is not None:
        yield f"It {overdue.text}."


def _wanted(scene: Scene, model: Model) -> str:
    count = desired(scene.world, model, scene.now_s)
    low, high = model.replicas.min, model.replicas.max
    bounds = f"exactly {low}" if low == high else f"{low} to {high}"
    moved = override(scene, model)
    return f"{model.name}: {counted(count, 'replica')} wanted; the catalog says {bounds}" + (
        f", and it is {moved}.{_ends(scene, model)}" if moved else "."
    )


def _ends(scene: Scene, model: Model) -> str:
    """What a count that was ordered means for those who ask for the model, and what ends it."""
    if model.name not in scene.world.wishes.scales:
        return ""
    return f" Meanwhile requests neither wake it nor let it sleep; `llmgw scale {model.name}` ends that."


def _published(scene: Scene, model: Model) -> str:
    row = scene.world.table.models.get(model.name)
    if row is None:
        return "Routers have not been told of it yet."
    ready = sum(1 for a in scene.by_model.get(model.name, ()) if scene.is_published(a.replica))
    return f"Routers are told that it is {row.state}, with {counted(ready, 'endpoint')}."


def _versions(scene: Scene, model: Model) -> Iterator[str]:
    """Which version serves, while that is not the catalog's alone."""
    former = scene.former(model.name)
    if not former:
        return
    mine = [a for a in scene.by_model.get(model.name, ()) if not scene.is_former(a)]
    new = sum(1 for a in mine if scene.is_published(a.replica))
    wanted = desired(scene.world, model, scene.now_s)
    yield (
        f"The version before the last edit serves meanwhile, with {counted(former, 'endpoint')}; "
        f"of the new one {new} of {wanted} wanted {'is' if wanted == 1 else 'are'} ready."
    )


def _names(scene: Scene, model: Model) -> Iterator[str]:
    """Aliases that are not yet where the catalog wants them."""
    row = scene.world.table.models.get(model.name)
    in_force = frozenset(() if row is None else row.aliases)
    holders = {alias: m.name for m in scene.world.table.models.values() for alias in m.aliases}
    for alias in sorted(set(model.aliases) - in_force - {model.name}):
        holder = holders.get(alias)
        where = f"is still with {holder}: it moves when {model.name} is ready" if holder else "is not in force yet"
        yield f"Alias {alias} {where}."


def _failures(scene: Scene, failures: tuple[Failure, ...]) -> Iterator[str]:
    if not failures:
        return
    last = failures[-1]
    code = "" if last.exit_code is None or "exit code" in last.text else f", exit code {last.exit_code}"
    yield (
        f"{counted(len(failures), 'attempt')} failed lately; the last one {lasting(scene.age_s(last.at_s))} ago: "
        f"{last.replica} on {last.node}, attempt {last.attempt}{code}: {last.text}."
    )
