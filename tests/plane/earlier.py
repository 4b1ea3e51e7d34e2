"""Histories in which something was handed over to the workflow before it was: a replay may cut tasks that way."""

import random
from typing import Any

from temporalio.client import WorkflowHistory

Event = dict[str, Any]

BEGUN_AS = {
    "ACTIVITY_TASK_COMPLETED": ("activityTaskCompletedEventAttributes", "startedEventId"),
    "ACTIVITY_TASK_TIMED_OUT": ("activityTaskTimedOutEventAttributes", "scheduledEventId"),
    "ACTIVITY_TASK_FAILED": ("activityTaskFailedEventAttributes", "startedEventId"),
    "ACTIVITY_TASK_STARTED": ("activityTaskStartedEventAttributes", "scheduledEventId"),
    "TIMER_FIRED": ("timerFiredEventAttributes", "startedEventId"),
    "WORKFLOW_EXECUTION_SIGNALED": None,
}
"""What comes from outside, and the event that it cannot come before."""


def told_earlier(history: WorkflowHistory, dice: random.Random, share: float = 0.5) -> tuple[WorkflowHistory, int]:
    """The history with some of what came from outside moved to a task before its own, and how many were moved.

    Signals keep their order among themselves, as everything does that happens at one place.
    """
    order: list[Event] = []
    moved = last_signal = 0
    for event in history.to_json_dict()["events"]:
        place = len(order)
        kind = event["eventType"].removeprefix("EVENT_TYPE_")
        if kind in BEGUN_AS and dice.random() < share:
            earliest = _place_of(order, event, kind) + 1
            if kind == "WORKFLOW_EXECUTION_SIGNALED":
                earliest = last_signal + 1
            tasks = [i for i, e in enumerate(order) if e["eventType"] == "EVENT_TYPE_WORKFLOW_TASK_SCHEDULED"]
            fit = [i for i in tasks[-4:] if i >= earliest and i > 1]
            if fit:
                place = dice.choice(fit)
                moved += 1
        order.insert(place, event)
        if kind == "WORKFLOW_EXECUTION_SIGNALED":
            last_signal = place
        elif place <= last_signal:
            last_signal += 1
    places = {event["eventId"]: str(place) for place, event in enumerate(order, start=1)}
    told = {"events": [_renumbered(event, places) for event in order]}
    return WorkflowHistory.from_json(history.workflow_id, told), moved


def _place_of(order: list[Event], event: Event, kind: str) -> int:
    where = BEGUN_AS[kind]
    if where is None:
        return 0
    needed = event[where[0]][where[1]]
    return next(place for place, before in enumerate(order) if before["eventId"] == needed)


def _renumbered(value: Any, places: dict[str, str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _renumbered(item, places, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_renumbered(item, places) for item in value]
    return places.get(value, value) if name.lower().endswith("eventid") else value
