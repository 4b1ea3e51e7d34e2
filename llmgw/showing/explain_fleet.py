"""Sentences about the fleet as a whole: what holds it up, and what is not as wanted."""

from collections.abc import Iterator

from llmgw.recent import Recent
from llmgw.sentences import counted, lasting
from llmgw.showing.explain_waiting import waiting_sentences
from llmgw.showing.phases import phase, unlike_wanted
from llmgw.showing.scene import Scene

MAX_WAITING = 20


def fleet_sentences(scene: Scene) -> Iterator[str]:
    world = scene.world
    now = phase(world, Recent(), scene.now_s).replace("_", " ")
    yield f"Fleet {world.fleet}: {now}, generation {world.generation} of its catalog."
    if (waiting := world.waiting.get("fleet")) is not None:
        yield from waiting_sentences(scene, waiting, world.fleet)
    yield from (f"Not as wanted: {text}." for text in unlike_wanted(world, scene.now_s))
    others = sorted((w for w in world.waiting.values() if w.subject != "fleet"), key=lambda w: (w.since_s, w.subject))
    for item in others[:MAX_WAITING]:
        yield f"{item.subject}, for {lasting(scene.age_s(item.since_s))}: {item.text.rstrip('.')}."
    if len(others) > MAX_WAITING:
        yield f"And {counted(len(others) - MAX_WAITING, 'more reason')} to wait."
