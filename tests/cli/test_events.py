"""`events`: each thing once and in order, for people and programs, through silences and new beginnings."""

import json

import yaml

from llmgw import views
from llmgw.plan import Plan
from llmgw.recent import KEPT_EVENTS, Recent
from llmgw.world import Event, World
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import NOW, serving


def with_events(recent: Recent, *texts: str, subject: str = "replica/a-1") -> Recent:
    return recent.with_plan(Plan(events=tuple(Event(NOW - 5, subject, text) for text in texts)), NOW)


class Going(WorldFleet):
    """Each look finds it a step further: what happens is in `steps`, an exception is a silence."""

    def __init__(self, *steps: Recent | Exception) -> None:
        super().__init__(World(fleet="main", installation="i", epoch=1, seq=0))
        self.steps = list(steps)

    async def workers(self) -> dict[str, float]:
        return {}

    async def query(self, name: str, *args: object, **_: object) -> object:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        self.recent = step
        return await super().query(name, *args)


def texts(lines: str) -> list[str]:
    return [json.loads(line)["text"] for line in lines.splitlines()]


def test_events_are_told_oldest_first_with_age_and_subject() -> None:
    recent = with_events(with_events(Recent(), "begins"), "ends", subject="node/n1")
    done = Command(Going(recent), columns=80)("events")
    assert done.stdout == "  5s  replica/a-1  begins\n  5s  node/n1  ends\n"


def test_only_those_of_a_subject() -> None:
    recent = with_events(with_events(Recent(), "begins"), "ends", subject="node/n1")
    for given in ("n1", "node/n1"):
        assert "begins" not in Command(Going(recent))("events", given).stdout
        assert "ends" in Command(Going(recent))("events", given).stdout


def test_those_of_a_model_are_its_replicas_too() -> None:
    placed = with_events(Recent(), "x/p goes to a", "is ready on a", subject="replica/x-3")
    other = with_events(placed, "y/p goes to a", subject="replica/y-1")
    fleet = WorldFleet(serving("x"), recent=with_events(other, "will stop", subject="replica/x-1"))
    done = Command(fleet)("events", "x", "--json")
    assert texts(done.stdout) == ["x/p goes to a", "is ready on a", "will stop"]


def test_what_nobody_knows_of_and_nothing_happened_to_is_refused() -> None:
    done = Command(Going(with_events(Recent(), "begins")))("events", "nosuch")
    assert done.exit_code == 1
    assert "called 'nosuch'" in done.stderr
    assert "begins" in Command(Going(with_events(Recent(), "begins")))("events", "a-1").stdout


def test_another_worker_and_another_agent_are_events() -> None:
    first = Recent().with_acting("a:1", NOW)
    assert first.events == ()
    then = first.with_acting("b:2", NOW)
    assert [event.text for event in then.events] == ["worker b:2 acts now, in place of a:1"]
    assert then.with_acting("b:2", NOW) == then
    assert then.event_count == 1


def test_whoever_follows_sees_each_once_and_hears_of_silences() -> None:
    first = with_events(Recent(), "a")
    second = with_events(first, "b", "c")
    fleet = Going(first, first, TimeoutError(), second, second)
    done = Command(fleet, pauses=6)("events", "--follow", "--json")
    assert texts(done.stdout) == ["a", "b", "c"]
    assert "no worker runs for fleet main" in done.stderr


def test_more_than_is_kept_between_two_looks_is_said() -> None:
    first = with_events(Recent(), "a")
    flood = with_events(first, *(f"e{i}" for i in range(KEPT_EVENTS + 7)))
    done = Command(Going(first, flood), pauses=2)("events", "--follow", "--json")
    assert texts(done.stdout) == ["a", *(f"e{i}" for i in range(7, KEPT_EVENTS + 7))]
    assert "7 events came faster than they are kept" in done.stderr


def test_a_fleet_that_began_anew_is_followed_from_its_begin() -> None:
    done = Command(Going(with_events(Recent(), "a", "b", "c"), with_events(Recent(), "x")), pauses=2)(
        "events", "--follow", "--json"
    )
    assert texts(done.stdout) == ["a", "b", "c", "x"]


def test_yaml_is_a_document_each() -> None:
    done = Command(Going(with_events(Recent(), "a", "b")))("events", "--yaml")
    assert [document["number"] for document in yaml.safe_load_all(done.stdout)] == [1, 2]


def test_numbers_go_on_over_what_was_carried_by_a_version_that_counted_none() -> None:
    old = Recent(events=tuple(Event(NOW, "node/n", str(i)) for i in range(3)))
    assert [e.number for e in views.events(old, NOW).events] == [1, 2, 3]
