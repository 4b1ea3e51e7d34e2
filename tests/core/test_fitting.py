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


def _warnings(**fields: object) -> list[str]:
    """Warnings about a model, on three declared nodes of which one has a label."""
    nodes: list[Raw] = [{"id": f"n{i}", "url": f"http://n{i}"} for i in range(3)]
    nodes[0]["labels"] = {"rack": "a"}
    profile: Raw = {"name": "p", "engine": "stub", **fields.pop("profile", {})}  # type: ignore[dict-item]
    checked = check({"nodes": nodes, "models": [{"name": "m", "profiles": [profile], **fields}]})
    assert checked.catalog is not None, list(map(str, checked.problems))
    return [warning.what for warning in checked.warnings]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"profile": {"labels": {"rack": "b"}}},
            "no declared node could ever hold profile p: no node of pool default has rack=b",
        ),
        (
            {"profile": {"nodes": ["n1"], "labels": {"rack": "a"}}},
            "no node of pool default is in its list and has rack=a",
        ),
        ({"profile": {"nodes": ["n9"]}}, '"n9" in `nodes` is not declared'),
        ({"replicas": 4, "max_per_node": 1}, "4 replicas are wanted, and 3 declared nodes may have 1 each"),
        ({"exclusive_group": "g"}, 'm is alone in group "g"'),
    ],
)
def test_places_that_contradict_each_other_are_warned_about(fields: Raw, words: str) -> None:
    (warning,) = _warnings(**fields)
    assert words in warning


@pytest.mark.parametrize(
    "fields",
    [
        {"profile": {"labels": {"rack": "a"}, "nodes": ["n0"]}},
        {"replicas": 3, "max_per_node": 1},
        {"profile": {"prefer_labels": {"rack": "z"}}},
    ],
)
def test_places_that_can_be_had_are_not_warned_about(fields: Raw) -> None:
    assert _warnings(**fields) == []


def test_a_claim_above_what_any_declared_device_may_share_is_warned_about() -> None:
    assert _fit_warnings([{"count": 1, "claim": "70GiB"}], [H100]) == []
    (warning,) = _fit_warnings([{"count": 1, "claim": "79GiB"}], [H100])
    assert "79GiB each of 1 × any on one node" in warning


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"count": 1, "claim": "20GiB", "memory": "10GiB"}, "claim 20GiB is above memory 10GiB"),
        ({"count": 2, "kind": "MIG 1g.10gb"}, "slices of devices (MIG) do not work together"),
        ({"count": 3, "devices": ["a", "b", "a"]}, "count is 3 and only 2 devices are listed"),
    ],
)
def test_devices_that_cannot_be_are_refused(item: Raw, words: str) -> None:
    checked = check(with_profile(accelerators=[item]))
    assert checked.catalog is None
    assert any(words in problem.what for problem in checked.problems), list(map(str, checked.problems))


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([{"count": 1, "devices": ["a"]}, {"count": 1, "devices": ["a"]}], False),
        ([{"count": 1, "devices": ["a", "b"]}, {"count": 1, "devices": ["a"]}], True),
        ([{"count": 1, "devices": ["a"]}, {"count": 1, "devices": ["a"]}, {"count": 1, "devices": ["c", "d"]}], False),
        ([{"count": 1, "devices": ["a"], "claim": "1GiB"}, {"count": 1, "devices": ["a"], "claim": "1GiB"}], True),
        ([{"count": 1, "devices": ["a"]}, {"count": 2}], True),
    ],
)
def test_lists_of_devices_that_cannot_be_met_together_are_refused(items: list[Raw], fits: bool) -> None:
    checked = check(with_profile(accelerators=items))
    assert (checked.catalog is not None) is fits
    if not fits:
        (problem,) = checked.problems
        assert problem.what == "2 items of accelerators take 2 whole devices together, and list only 1 different ones"


@pytest.mark.parametrize(("least", "nodes", "told"), [(1, 2, True), (1, 3, False), (0, 2, False), (1, 0, False)])
def test_a_group_that_cannot_be_kept_apart_is_warned_about(least: int, nodes: int, told: bool) -> None:
    profile = {"name": "p", "engine": "stub"}
    members: list[Raw] = [
        {"name": n, "exclusive_group": "g", "replicas": {"min": least, "max": 1}, "profiles": [profile]} for n in "abc"
    ]
    declared = [{"id": f"n{i}", "url": f"http://n{i}"} for i in range(nodes)]
    found = [w.what for w in check({"nodes": declared, "models": members}).warnings]
    words = 'models of group "g" are to run, no two on one node, and 2 declared nodes may have them'
    assert found == ([f"3 {words}"] if told else [])
