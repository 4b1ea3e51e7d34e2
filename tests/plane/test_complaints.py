"""What an agent says is wrong with its own node reaches the plane, cut, and fills no history when it comes and goes."""

import random

import pytest

from activities.complaints import FIRST_REST_S, LONGEST_REST_S, MOST, Complaints
from activities.pool import Pool
from llmgw.observation import Observation
from llmgw.wire import MAX_ERROR_CHARS, NodeReport
from tests.plane.test_parts import full_report, hear, pool

__all__ = ["pool"]

LOST = "the state folder was removed"


def saying(*problems: str, revision: int = 7) -> NodeReport:
    report = full_report(random.Random(1), 7)
    return report.model_copy(update={"problems": problems, "revision": revision})


def told(pool: Pool, cursor: int = 0) -> Observation:
    return pool._part(cursor)


async def test_what_is_wrong_is_told_at_once_and_cut(pool: Pool) -> None:
    hear(pool, saying())
    before = told(pool)
    hear(pool, saying(LOST, "x" * 5_000, *map(str, range(20))))
    (seen,) = told(pool, before.cursor).nodes
    assert seen.problems[0] == LOST
    assert len(seen.problems) == MOST
    assert max(map(len, seen.problems)) == MAX_ERROR_CHARS


async def test_what_flaps_is_told_seldom_and_at_last_as_it_is(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, told_changes = 1_000.0, 0
    monkeypatch.setattr(pool, "clock", lambda: now_s)
    hear(pool, saying())
    cursor = told(pool).cursor
    for second in range(3600):
        now_s += 1.0
        hear(pool, saying(*([LOST] if second % 2 == 0 else []), revision=8 + second))
        pool.tell_complaints(now_s)
        told_changes += pool._seq > cursor
        cursor = pool._seq
    assert 1 < told_changes <= 8
    hear(pool, saying(LOST, revision=9_000))
    now_s += LONGEST_REST_S
    pool.tell_complaints(now_s)
    hear(pool, saying(revision=9_001))
    now_s += 2 * LONGEST_REST_S
    pool.tell_complaints(now_s)
    (seen,) = told(pool).nodes
    assert seen.problems == ()


def test_after_quiet_the_next_word_is_told_at_once_and_rests_are_short_again() -> None:
    one = Complaints()
    now_s = 0.0
    for step in range(12):
        now_s += LONGEST_REST_S
        one.hear([str(step)], now_s)
    now_s += 3 * LONGEST_REST_S
    assert one.hear(["anew"], now_s) == ("anew",)
    assert one.hear([], now_s + FIRST_REST_S - 1) == ("anew",)
    assert not one.is_due(now_s + FIRST_REST_S - 1)
    assert one.hear_again(now_s + FIRST_REST_S) == ()
