"""What is counted, and what makes a revision."""

from dataclasses import dataclass

from llmgw.table import build as build_table
from llmgw.wire import Endpoint, ModelState
from router.asks import ASK_KEPT_S, ASK_QUIET_S
from router.routing import build
from router.traffic import GONE_KEPT_S, Traffic
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

    def publish(
        self, *endpoints: Endpoint, state: ModelState = ModelState.READY, idle_after_s: float | None = None
    ) -> None:
        named = model("m", "chat", state=state).model_copy(update={"idle_after_s": idle_after_s})
        tables = {"f": build_table((named,), endpoints)}
        self.traffic.install(build(tables, self.clock.now, self.traffic.routing, self.traffic.withdrawn))

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
    tables = {"f": build_table((model("m"),), (endpoint("m-1"),))}
    late = build(tables, scene.clock.now, scene.traffic.routing, dict(scene.traffic.withdrawn))
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
        scene.traffic.asks.note(route)
        revisions.append(scene.revision)
    first = revisions[0]
    assert revisions == [first, first, first, first + 1]
    assert scene.traffic.asks.asked == {"m": scene.clock.now}


async def test_an_ask_is_answered_by_the_first_ready_endpoint() -> None:
    scene = Scene()
    scene.publish(state=ModelState.ASLEEP)
    scene.traffic.asks.note(scene.traffic.routing.routes["m"])
    scene.publish(state=ModelState.STARTING)
    assert list(scene.traffic.asks.asked) == ["m"]
    scene.publish(endpoint("m-1"))
    assert scene.traffic.asks.asked == {}


async def test_counts_of_what_is_gone_are_readable_for_a_while() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    scene.publish(endpoint("m-2"))
    assert {use.id for use in scene.traffic.everything_used()} == {"m-1", "m-2"}
    scene.clock.now += GONE_KEPT_S
    scene.traffic.forget()
    assert [use.id for use in scene.traffic.everything_used()] == ["m-2"]


async def test_an_ask_that_nobody_repeats_is_over_and_that_is_news() -> None:
    scene = Scene()
    scene.publish(state=ModelState.ASLEEP)
    scene.traffic.asks.note(scene.traffic.routing.routes["m"])
    before = scene.revision
    scene.clock.now += ASK_KEPT_S - 1
    scene.traffic.tick()
    assert (list(scene.traffic.asks.asked), scene.revision) == (["m"], before)
    scene.clock.now += 1
    scene.traffic.tick()
    assert (scene.traffic.asks.asked, scene.revision) == ({}, before + 1)


async def test_becoming_idle_and_being_used_again_are_news_once_each() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"), idle_after_s=60.0)
    revisions = []
    for pause in (59.0, 1.0, 100.0):
        scene.clock.now += pause
        scene.traffic.tick()
        revisions.append((scene.revision, set(scene.traffic.idle)))
    first = revisions[0][0]
    assert revisions == [(first, set()), (first + 1, {("f", "m-1")}), (first + 1, {("f", "m-1")})]
    use = scene.pick()
    scene.clock.now += 500.0
    scene.traffic.tick()
    assert (scene.revision, scene.traffic.idle) == (first + 2, frozenset()), "the answer takes long, and counts as use"
    scene.traffic.finish(use)
    scene.clock.now += 59.0
    scene.traffic.tick()
    assert scene.traffic.idle == frozenset(), "idle from the end of the answer on, not from its beginning"
    scene.clock.now += 1.0
    scene.traffic.tick()
    assert scene.traffic.idle == {("f", "m-1")}


async def test_an_endpoint_that_nobody_watches_is_never_told_as_idle() -> None:
    scene = Scene()
    scene.publish(endpoint("m-1"))
    scene.clock.now += 1e6
    scene.traffic.tick()
    assert scene.traffic.idle == frozenset()


async def test_a_waking_takes_as_long_as_the_last_one_did() -> None:
    scene = Scene()
    asks = scene.traffic.asks

    def expected_s() -> int:
        return asks.expected_s(scene.traffic.routing.routes["m"])

    scene.publish(state=ModelState.ASLEEP)
    asks.note(scene.traffic.routing.routes["m"])
    assert expected_s() == 10, "the table's word, while nothing better is known"
    scene.clock.now += 30.0
    scene.publish(endpoint("m-1"))
    scene.publish(state=ModelState.ASLEEP)
    asks.note(scene.traffic.routing.routes["m"])
    assert expected_s() == 30
    scene.clock.now += 12.5
    assert expected_s() == 18
    scene.clock.now += 60.0
    assert expected_s() == 10, "it takes longer than the last time"
