"""When a silence counts."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.silence import silence_level
from llmgw.world import SilenceLevel

S = st.floats(0, 200)


def test_a_silence_becomes_suspect_and_then_lost() -> None:
    levels = [silence_level(s, 4, 4, 10.0, 60.0) for s in (0.0, 9.9, 10.0, 59.9, 60.0, 1e6)]
    heard, suspect, lost = SilenceLevel
    assert levels == [heard, heard, suspect, suspect, lost, lost]


def test_it_counts_only_if_at_least_half_of_the_others_were_heard_since() -> None:
    assert silence_level(100.0, 1, 3, 10.0, 60.0) is SilenceLevel.HEARD
    assert silence_level(100.0, 2, 3, 10.0, 60.0) is SilenceLevel.LOST
    assert silence_level(100.0, 2, 4, 10.0, 60.0) is SilenceLevel.LOST


def test_the_only_target_has_no_witnesses_and_needs_none() -> None:
    assert silence_level(100.0, 0, 0, 10.0, 60.0) is SilenceLevel.LOST


@given(S, S, st.integers(0, 50), st.integers(0, 50))
def test_a_longer_silence_or_more_witnesses_never_make_it_less(a: float, b: float, heard: int, others: int) -> None:
    order = list(SilenceLevel)
    low, high = sorted((a, b))
    assert order.index(silence_level(low, heard, others, 10, 60)) <= order.index(
        silence_level(high, heard, others, 10, 60)
    )
    assert order.index(silence_level(a, heard, others, 10, 60)) <= order.index(
        silence_level(a, heard + 1, others, 10, 60)
    )
