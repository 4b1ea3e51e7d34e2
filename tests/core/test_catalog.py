"""The catalog as a value: what is the same wish, and how a change is told."""

import pytest

from llmgw.catalog import Catalog, Replicas, catalog_bytes, catalog_digest
from llmgw.diff import differences

from .catalogs import accepted, model, profile, with_profile


def test_a_written_default_is_the_same_wish() -> None:
    long = with_profile(args=[], env={}, weight=100, pool="default", start_limit_s=600)
    long["models"][0] |= {"aliases": [], "replicas": {"min": 1, "max": 1}, "priority": 0}
    long |= {"pools": [], "policy": {"settle_s": 60}}
    assert catalog_digest(accepted(long)) == catalog_digest(accepted(with_profile()))


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [(3, 3, 3), (0, 0, 0), ({"min": 0}, 0, 1), ({"min": 4}, 4, 4), ({"max": 4}, 1, 4), ({}, 1, 1)],
)
def test_replicas_are_a_number_or_bounds(written: object, low: int, high: int) -> None:
    assert accepted({"models": [model(replicas=written)]}).models[0].replicas == Replicas(min=low, max=high)


def test_a_model_is_found_by_its_name_and_not_by_an_alias() -> None:
    catalog = accepted({"models": [model("a", aliases=["b"])]})
    assert catalog.model("a") is catalog.models[0]
    assert catalog.model("b") is None


def test_arguments_are_kept_byte_for_byte() -> None:
    args = ["", "a b", '{"x": "y"}', "--x", "--x", "ünïcode", "a;b", "$$", "'q'", "", "\t\n"]
    assert accepted(with_profile(args=args)).models[0].profiles[0].args == tuple(args)


def test_the_size_counts_the_canonical_json() -> None:
    catalog = accepted(with_profile())
    assert catalog_bytes(catalog) == len(b'{"models":[{"name":"m","profiles":[{"engine":"stub","name":"p"}]}]}')


# --- differences ---------------------------------------------------------------------------------------------------


def test_differences_name_each_field_before_and_after() -> None:
    old = accepted(
        {
            "models": [
                model("a", profile(args=["x"], env={"E": "1"}), profile(name="q"), aliases=["chat"], replicas=1),
                model("gone"),
            ],
            "nodes": [{"id": "n", "url": "http://n:1"}],
        }
    )
    new = accepted(
        {
            "models": [
                model("a", profile(name="q"), profile(args=["x", ""], env={"E": "2"}), profile(name="r"), replicas=2),
                model("b", aliases=["chat"]),
            ],
            "nodes": [{"id": "n", "url": "http://n:2"}],
            "policy": {"settle_s": 30},
        }
    )
    assert [str(difference) for difference in differences(old, new)] == [
        "alias chat: a → b",
        'model a: aliases ["chat"] → absent',
        'model a: profile p args ["x"] → ["x",""]',
        "model a: profile p env.E 1 → 2",
        "model a: profile r absent → engine stub",
        "model a: replicas 1 → 2",
        "model b added",
        "model gone removed",
        "node n: url http://n:1 → http://n:2",
        "policy: settle_s 60 (default) → 30",
    ]


def test_what_was_not_written_is_told_by_its_default() -> None:
    new = model("m", profile(weight=50, host_memory="4GiB"), spread_zones=True, idle_timeout_s=60, priority=3)
    edited = accepted({"models": [new], "policy": {"max_loading_per_node": 8}, "nodes": []})
    assert [str(d) for d in differences(accepted({"models": [model("m", profile())]}), edited)] == [
        "model m: idle_timeout_s absent → 60",
        "model m: priority 0 (default) → 3",
        "model m: profile p host_memory absent → 4096",
        "model m: profile p weight 100 (default) → 50",
        "model m: spread_zones false (default) → true",
        "policy: max_loading_per_node 2 (default) → 8",
    ]


def test_an_order_of_profiles_is_a_difference() -> None:
    one, two = profile(name="x"), profile(name="y")
    old, new = accepted({"models": [model("m", one, two)]}), accepted({"models": [model("m", two, one)]})
    assert [str(difference) for difference in differences(old, new)] == ["model m: order of profiles x, y → y, x"]


def test_against_nothing_everything_is_added() -> None:
    assert [str(d) for d in differences(None, accepted(with_profile()))] == ["model m added"]
    assert differences(None, Catalog()) == ()
