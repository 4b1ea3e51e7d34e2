"""The example catalog of the dev stack: small models on a real llama.cpp, each answering a sentence of its own.

Where no llama.cpp server is installed, the stub engine stands in. It writes model files and makes catalogs; it never
talks to the fleet.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.devstack.layout import NODES, Layout
from workers.devstack.parts import DEVICE_KIND, ROUTER

Json = dict[str, Any]
ENGINE = "tiny-llama"
FIRST, SECOND, STORY = "hello", "second", "story"
ALIAS = "chat"


@dataclass(frozen=True, slots=True)
class TinyModel:
    """`text`: what it answers. `loop`: again and again, until a request's own limit."""

    name: str
    text: str
    loop: bool = False
    n_embd: int = 64
    n_layer: int = 2


MODELS: Mapping[str, TinyModel] = {
    model.name: model
    for model in (
        TinyModel(FIRST, "Hello from the first model , served by a real engine ."),
        TinyModel(SECOND, "I am the second model , and a signal brought me here ."),
        # Larger, so that it can be watched while it streams.
        TinyModel(STORY, "and so it went on ,", loop=True, n_embd=256, n_layer=6),
    )
}


def write_models(folder: Path) -> None:
    """Write the model files that are not there yet; needs the `dev` extra."""
    from workers.tiny_model import write_tiny_gguf  # numpy: only where a model is to be written

    folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS.values():
        path = weights_path(folder, model)
        if not path.exists():
            write_tiny_gguf(path, model.text, loop=model.loop, n_embd=model.n_embd, n_layer=model.n_layer)


def weights_path(folder: Path, model: TinyModel) -> Path:
    return folder / f"{model.name}.gguf"


def catalog(layout: Layout, llama: str | None, models: Iterable[Json], **policy: float) -> Json:
    """A catalog of this stack's nodes and router with `models`."""
    made: Json = {
        "nodes": [{"id": node, "url": layout.url(node)} for node in NODES],
        "routers": [{"id": ROUTER, "url": layout.url(ROUTER)}],
        "models": list(models),
        "policy": {"drain_limit_s": 10.0, **policy},
    }
    if llama is not None:
        args = ["-t", "1", "-np", "2", "-c", "4096"]
        made["engines"] = {ENGINE: {"base": "llama.cpp", "executable": [llama], "args": args}}
    return made


def model(layout: Layout, llama: str | None, name: str, aliases: Iterable[str] = (), replicas: int = 1) -> Json:
    """The catalog's entry of one of `MODELS`, on one device per replica."""
    profile: Json = {"name": "one-device", "accelerators": [{"count": 1, "kind": DEVICE_KIND}]}
    profile |= {"engine": "stub"} if llama is None else {"engine": ENGINE}
    entry: Json = {"name": name, "replicas": replicas, "profiles": [profile]}
    if llama is not None:
        entry["weights"] = f"file://{weights_path(layout.root / 'models', MODELS[name])}"
    if aliases := list(aliases):
        entry["aliases"] = aliases
    return entry


def first_catalog(layout: Layout, llama: str | None) -> Json:
    """Two models, one of them twice and under a second name."""
    return catalog(layout, llama, [_first(layout, llama), model(layout, llama, STORY)])


def second_catalog(layout: Layout, llama: str | None) -> Json:
    """The first, and one model more."""
    models = [_first(layout, llama), model(layout, llama, STORY), model(layout, llama, SECOND)]
    return catalog(layout, llama, models)


def _first(layout: Layout, llama: str | None) -> Json:
    return model(layout, llama, FIRST, aliases=[ALIAS], replicas=2)


def write_catalog(path: Path, content: Json) -> None:
    """JSON for people, and for `temporal workflow signal --input-file`."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)
