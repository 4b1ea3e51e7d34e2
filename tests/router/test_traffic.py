"""What is counted, and what makes a revision."""

from dataclasses import dataclass

from llmgw.table import build as build_table
from llmgw.wire import Endpoint, ModelState
from router.routing import build
from router.traffic import ASK_QUIET_S, GONE_KEPT_S, Traffic
from router.uses import Use

from .rig import endpoint, model


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.traffic = Traffic(self.clock)

    def publish(self, *endpoints: Endpoint, state: ModelState = ModelState.READY) -> None:
        tables = {"f": build_table((model("m", "chat", state=state),), endpoints)}
        self.traffic.install(build(tables, self.traffic.uses(), self.clock.now))

    def pick(self) -> Use:
        taken = self.traffic.routing.routes["m"].take(self.clock.now)
        assert taken is not None
        return taken.use

    @property
    def revision(self) -> int:
        return self.traffic.changes.revision


async def test_a_request_makes_no_revision() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    before = scene.revision
    use = scene.pick()
    scene.clock.now += 5
    assert use.idle_s(scene.clock.now) == 0
    scene.traffic.finish(use)
    scene.clock.now += 2
    assert use.idle_s(scene.clock.now) == 2
    assert scene.revision == before


async def test_a_withdrawn_endpoint_stays_until_its_last_request_is_over_and_then_is_news() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    first, second = scene.pick(), scene.pick()
    scene.publish(endpoint("m-2"))
    assert first is second
    assert list(scene.traffic.withdrawn.values()) == [first]
    assert first.withdrawn
    before = scene.revision
    scene.traffic.finish(first)
    assert scene.revision == before
    assert first.in_flight == 1
    scene.traffic.finish(second)
    assert scene.revision == before + 1
    assert scene.traffic.withdrawn == {}


async def test_an_endpoint_that_comes_back_while_draining_keeps_its_count() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    use = scene.pick()
    scene.publish()
    scene.publish(endpoint("m-1"))
    assert scene.traffic.withdrawn == {}
    assert scene.pick() is use
    assert use.in_flight == 2
    before = scene.revision
    scene.traffic.finish(use)
    scene.traffic.finish(use)
    assert scene.revision == before
    scene.publish()
    assert scene.traffic.withdrawn == {}


async def test_a_snapshot_built_while_the_last_request_ended_is_sound() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    use = scene.pick()
    scene.publish()
    late = build({"f": build_table((model("m"),), (endpoint("m-1"),))}, scene.traffic.uses(), scene.clock.now)
    scene.traffic.finish(use)
    scene.traffic.install(late)
    again = scene.pick()
    assert again is use
    scene.traffic.finish(again)
    assert [u.key for u in scene.traffic.everything_used()] == [("f", "m-1")]


async def test_the_first_ask_after_quiet_is_news_and_those_that_follow_are_not() -> None:
    scene = Scene()
    scene.publish(state=ModelState.ASLEEP)
    route = scene.traffic.routing.routes["chat"]
    revisions = []
    for pause in (0.0, 1.0, ASK_QUIET_S, ASK_QUIET_S + 0.1):
        scene.clock.now += pause
        scene.traffic.ask(route)
        revisions.append(scene.revision)
    first = revisions[0]
    assert revisions == [first, first, first, first + 1]
    assert scene.traffic.asked == {"m": scene.clock.now}


async def test_an_ask_is_answered_by_the_first_ready_endpoint() -> None:
    scene = Scene()
    scene.publish(state=ModelState.ASLEEP)
    scene.traffic.ask(scene.traffic.routing.routes["m"])
    scene.publish(state=ModelState.STARTING)
    assert list(scene.traffic.asked) == ["m"]
    scene.publish(endpoint("m-1"))
    assert scene.traffic.asked == {}


async def test_counts_of_what_is_gone_are_readable_for_a_while() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    scene.publish(endpoint("m-2"))
    assert [use.id for use in scene.traffic.everything_used()] == ["m-2", "m-1"]
    scene.clock.now += GONE_KEPT_S
    scene.traffic.forget()
    assert [use.id for use in scene.traffic.everything_used()] == ["m-2"]
