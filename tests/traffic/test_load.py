"""The short form of `bench.load`: no stream fails while everything around it changes, and while the workflow continues
as new every hundred events or so."""

from pathlib import Path

import pytest

from bench.load import STEPS, Scale, under_load

pytestmark = pytest.mark.real


async def test_no_stream_fails_whatever_happens_around_it(tmp_path: Path) -> None:
    scale = Scale(replacements=6, rolls=1, away_s=1.0, clients=6, wakes=3, max_history=150)
    steps = [name for name, _ in STEPS]
    load, crowd = await under_load(tmp_path, scale, steps)
    assert crowd.count.failures == {}, crowd.count.examples
    assert list(load.took_s) == steps
    assert crowd.count.whole > 20 * scale.clients
    assert len(crowd.count.replicas) > 8, "it went through replicas that came and went"
