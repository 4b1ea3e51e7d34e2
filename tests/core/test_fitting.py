"""Warnings about profiles that no declared node could ever hold: only where that is certain."""

import pytest

from llmgw.validation import check

from .catalogs import Raw, with_profile


def _fit_warnings(asked: list[Raw], *devices: list[Raw], **fields: object) -> list[str]:
    nodes = [{"id": f"n{i}", "url": f"http://n{i}", "devices": there} for i, there in enumerate(devices)]
    checked = check({**with_profile(accelerators=asked, **fields), "nodes": nodes, "pools": [{"name": "b"}]})
    assert checked.catalog is not None, list(map(str, checked.problems))
    return [warning.what for warning in checked.warnings]


H100: Raw = {"count": 4, "kind": "H100", "memory": 81559}
L4: Raw = {"count": 2, "kind": "l4", "memory": 23034}


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ([{"count": 4, "kind": "h100", "memory": "80GB"}], [[H100]]),
        ([{"count": 5, "kind": "h100"}], [[H100], []]),  # one node declares nothing: who knows
        ([{"count": 6}], [[H100, L4]]),
        ([{"count": 1, "kind": "l4"}, {"count": 4}], [[H100, L4]]),
        ([{"count": 1, "kind": "x", "memory": "900GB"}], [[{"count": 1, "kind": "x"}]]),  # unknown memory may suit
        ([], [[]]),
    ],
)
def test_what_may_fit_is_not_warned_about(asked: list[Raw], devices: list[list[Raw]]) -> None:
    assert _fit_warnings(asked, *devices) == []


@pytest.mark.parametrize(
    ("asked", "devices", "words"),
    [
        ([{"count": 5, "kind": "h100"}], [[H100], [H100]], "5 × h100 on one node; the largest, n0, has 4 × H100"),
        ([{"count": 1, "memory": "80GiB"}], [[H100, L4]], "1 × any of 80GiB"),
        ([{"count": 2, "kind": "l4"}, {"count": 1, "kind": "L4"}], [[H100, L4]], "2 × l4 + 1 × L4"),
        ([{"count": 1, "kind": "l4"}, {"count": 6}], [[H100, L4]], "1 × l4 + 6 × any"),  # only together too much
    ],
)
def test_a_profile_that_no_declared_node_could_ever_hold_is_warned_about(
    asked: list[Raw], devices: list[list[Raw]], words: str
) -> None:
    (warning,) = _fit_warnings(asked, *devices)
    assert "no declared node could ever hold profile p" in warning
    assert words in warning


def test_a_pool_without_nodes_is_warned_about_where_nodes_are_declared() -> None:
    (warning,) = _fit_warnings([], [H100], pool="b")
    assert "no node is in pool b" in warning
    assert check({**with_profile(pool="b"), "pools": [{"name": "b"}]}).warnings == ()
