"""Durations and times to come, as people type them."""

from datetime import datetime, timedelta, timezone

import pytest
import typer

from cli.durations import seconds, until
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import world

NOW = datetime(2027, 3, 5, 17, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("18:00", 1800.0),
        ("17:30", 86_400.0),
        ("9:05", 15.0 * 3600 + 35 * 60),
        ("2027-03-05T18:00", 1800.0),
        ("2027-03-05T16:00+00:00", 1800.0),
        ("2027-03-05T17:00", None),
        ("25:00", None),
        ("soon", None),
    ],
)
def test_a_time_to_come_is_a_duration(text: str, expected_s: float | None) -> None:
    assert until(text, NOW) == expected_s


@pytest.mark.parametrize("text", ["-5", "1x", "24:61", "2001-01-01", ""])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no duration"):
        seconds(text)


def test_an_order_may_hold_until_a_time() -> None:
    fleet = WorldFleet(world("qwen"))
    assert Command(fleet)("scale", "qwen", "1", "--until", "2h").exit_code == 0
    assert Command(fleet)("pause", "--reason", "by hand", "--until", "23:59").exit_code == 0
    [(_, scaled), (_, paused)] = fleet.sent
    assert isinstance(scaled, dict)
    assert isinstance(paused, dict)
    assert scaled["for_s"] == 7200.0
    assert 0 < paused["for_s"] <= 86_400
