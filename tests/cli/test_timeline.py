"""A replica's life out of recorded histories: every step, once, by whom; also when the history lacks something."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from cli.timeline_rows import Moment, lines
from llmgw.world import World
from tests.cli.fleets import Command, WorldFleet
from workflows.client import Run
from workflows.past import Reader

HISTORIES = Path(__file__).parent.parent / "histories"


class Remembering(WorldFleet):
    """A fleet with recorded histories, the newest first."""

    def __init__(self, *histories: list[HistoryEvent]) -> None:
        super().__init__(World(fleet="main", installation="i", epoch=1, seq=0))
        self.histories = histories

    async def past(self, most: int) -> AsyncIterator[Run]:
        for events in self.histories[:most]:
            reader = Reader(pydantic_data_converter)
            for event in events:
                await reader.take(event)
            yield Run("run", tuple(reader.moments), None, reader.unread)


def recorded(name: str) -> list[HistoryEvent]:
    return list(WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text()).events)


def told(fleet: Remembering, *words: str) -> list[tuple[str, str]]:
    done = Command(fleet)("timeline", *words, "--json")
    assert done.exit_code == 0, done.stderr
    return [(moment["who"], moment["what"]) for moment in json.loads(done.stdout)]


def first(moments: list[tuple[str, str]], *parts: str) -> list[int]:
    """Where each of `parts` is told first."""
    return [next(i for i, (who, what) in enumerate(moments) if part in f"{who} {what}") for part in parts]


def test_a_life_is_told_in_order_by_those_who_lived_it() -> None:
    moments = told(Remembering(recorded("edits")), "x-0")
    order = first(
        moments, "plane x/p goes to a", "plane tells a to start it", "a takes it", "a reports it ready", "r routes"
    )
    assert order == sorted(order)


def test_a_plain_name_may_be_a_model_s_and_what_nobody_knows_is_told() -> None:
    fleet = Remembering(recorded("edits"))
    assert told(fleet, "x") == told(fleet, "model/x")
    done = Command(Remembering(recorded("edits")))("timeline", "nosuch")
    assert done.exit_code == 1
    assert "there is no model, replica, node or router called 'nosuch'" in done.stderr


def test_an_end_is_told_with_its_cause() -> None:
    fleet = Remembering(recorded("edits"))
    everything = told(fleet, "model/x")
    order = first(everything, "will stop", "has taken it out", "to stop it", "nothing of it is left")
    assert order == sorted(order)


def test_a_life_is_put_together_from_several_runs_and_no_further_back_than_its_begin() -> None:
    events = recorded("edits")
    half = next(
        i for i, e in enumerate(events) if e.HasField("marker_recorded_event_attributes") and i > len(events) // 2
    )
    parted = Remembering(events[half:], events[:half], recorded("failures"))
    by_plane = [what for who, what in told(parted, "x-0") if who == "plane"]
    assert by_plane == [what for who, what in told(Remembering(events), "x-0") if who == "plane"]


def test_times_and_gaps_are_shown_and_lines_fit() -> None:
    fleet = Remembering(recorded("edits"))
    for columns in (80, 140):
        page = Command(fleet, columns=columns)("timeline", "x-0").stdout
        assert "AFTER" in page
        assert "+0.000s" in page
        assert [line for line in page.splitlines() if len(line) > columns] == []


def test_nothing_told_is_said_with_what_to_do() -> None:
    fleet = Remembering(recorded("edits"))
    done = Command(fleet)("timeline", "nobody-7")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing is told of nobody-7 in the last run of the workflow; nothing older is kept" in done.stderr
    assert "--runs goes further back" in Command(fleet)("timeline", "nobody-7", "--runs", "1").stderr


def test_events_that_are_not_understood_are_counted_and_left_out() -> None:
    events = recorded("edits")
    marker = next(e for e in events if e.HasField("marker_recorded_event_attributes"))
    for payload in marker.marker_recorded_event_attributes.details["result"].payloads:
        payload.data = b"\x00 encrypted"
    done = Command(Remembering(events))("timeline", "x-0")
    assert done.exit_code == 0
    assert "1 events of the history are not understood here" in done.stderr


@pytest.mark.parametrize("name", ["edits", "failures", "long_run"])
def test_every_replica_of_every_history_has_a_life(name: str) -> None:
    fleet = Remembering(recorded(name))
    models = {"edits": "x", "failures": "x", "long_run": "m0"}
    assert told(fleet, f"model/{models[name]}")


def test_what_is_repeated_unchanged_is_told_once() -> None:
    again = [
        Moment(float(i), "a-1", who, what)
        for i, (who, what) in enumerate([("n", "x"), ("p", "y"), ("n", "x"), ("n", "z"), ("n", "x")])
    ]
    assert [(m.who, m.what) for m in lines(again)] == [("n", "x"), ("p", "y"), ("n", "z"), ("n", "x")]
