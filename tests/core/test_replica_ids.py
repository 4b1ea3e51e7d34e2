"""Ids of replicas: short, unique for ever, and easy to read aloud."""

from dataclasses import replace

import pytest

from llmgw.filling import DIGITS
from llmgw.ids import NodeId

from .fleets import START_S, catalog, fleet, model, of

ALL_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
"""The digits of ids that earlier versions made."""


def minted(first: int, count: int) -> list[str]:
    """What follows the slug of `count` replicas whose numbers begin with `first`."""
    f = fleet("a", count=count)
    f.world = replace(f.world, next_replica=first)
    f.catalog(catalog(f, model("m", count)))
    f.run(START_S)
    return [a.replica.removeprefix("m-") for a in of(f, "m")]


@pytest.mark.parametrize("first", [0, 30, 33 * 33 - 4, 46_600])
def test_no_digit_looks_or_sounds_like_another(first: int) -> None:
    made = minted(first, 8)
    assert len(set(made)) == 8
    assert not set("ilo") & set("".join(made))


def test_the_next_number_never_makes_an_id_of_an_earlier_version_again() -> None:
    """Whatever was made of `n` with 36 digits would be made, with these, of a number below or at `n`."""
    for n in range(40_000):
        text, rest = "", n
        while True:
            rest, digit = divmod(rest, 36)
            text = ALL_36[digit] + text
            if not rest:
                break
        if set(text) <= set(DIGITS):
            assert sum(DIGITS.index(d) * 33**i for i, d in enumerate(reversed(text))) <= n


def test_numbers_go_on_where_they_were() -> None:
    f = fleet("a", count=2)
    f.world = replace(f.world, next_replica=34)
    f.catalog(catalog(f, model("m", 2)))
    f.run(START_S)
    assert f.world.next_replica == 36
    assert {a.replica for a in of(f, "m")} == {"m-11", "m-12"}
    assert {a.node for a in of(f, "m")} == {NodeId("a")}
