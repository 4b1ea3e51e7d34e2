"""Orders that hold until a time to come."""

from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import world


def test_an_order_may_hold_until_a_time() -> None:
    fleet = WorldFleet(world("qwen"))
    assert Command(fleet)("scale", "qwen", "1", "--until", "2h").exit_code == 0
    assert Command(fleet)("pause", "--reason", "by hand", "--until", "23:59").exit_code == 0
    [(_, scaled), (_, paused)] = fleet.sent
    assert isinstance(scaled, dict)
    assert isinstance(paused, dict)
    assert scaled["for_s"] == 7200.0
    assert 0 < paused["for_s"] <= 86_400
