"""Tables that routers took are told at once: these tests wait for what routers are seen to hold."""

import pytest


@pytest.fixture(autouse=True)
def tables_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.pool.TABLE_ECHO_S", 0.0)
    monkeypatch.setattr("activities.pool.ECHO_S", 0.0)
