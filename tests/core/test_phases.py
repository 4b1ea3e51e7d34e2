"""The phase of a fleet says what is true: on its way, as wanted, or as far as it comes by itself."""

import pytest

from llmgw import accepted, views
from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.ids import NodeId
from llmgw.recent import Recent
from llmgw.world import InputKind
from sim.fleet import SimFleet

from .fleets import catalog, fleet, model, only, running


def phase(f: SimFleet) -> str:
    assert decide(f.world, f.now_s).phase == views.phase(f.world, Recent(), f.now_s)
    return views.phase(f.world, Recent(), f.now_s)


def text(f: SimFleet) -> str:
    return views.status(f.world, Recent(), f.now_s).phase_text


def test_a_fleet_comes_to_rest_though_a_declared_router_is_dead() -> None:
    f = fleet("ab", routers=("r1", "r2"))
    f.cut = {"router/r2"}
    f.catalog(catalog(f, model("m")))
    f.run(30)
    assert phase(f) == "degraded"
    assert "router/r2" in text(f)
    f.cut = set()
    f.run(30)
    assert phase(f) == "steady"


def test_a_fleet_that_replaced_its_lost_node_is_degraded_until_the_node_is_back() -> None:
    f = running(model("m"), nodes="abc")
    assert phase(f) == "steady"
    f.cut = {f"node/{only(f, 'm').node}"}
    f.run(20)
    assert phase(f) == "converging", "a suspect node comes back or is lost"
    f.run(60)
    assert phase(f) == "degraded"
    assert "is lost" in text(f) or "silent" in text(f)
    f.cut = set()
    f.run(10)
    assert phase(f) == "steady"


def test_what_has_no_place_and_what_is_given_up_is_not_on_its_way() -> None:
    f = running(model("m", 3, 2), nodes="a")
    f.run(20)
    assert phase(f) == "degraded"
    assert "model/m" in text(f)
    f = fleet("a")
    f.nodes[NodeId("a")].crash_starts = True
    f.catalog(catalog(f, model("m"), policy={"max_attempts": 2}))
    f.run(11)
    assert phase(f) == "converging", "another attempt follows"
    f.run(60)
    assert phase(f) == "degraded"


def test_an_accepted_catalog_is_parsed_once_by_judging_and_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    f = running(model("m"))
    raw = [catalog(f, model("m"), model("k"))]
    parsed: list[object] = []
    validate = Catalog.model_validate

    def watched(sent: object) -> Catalog:
        parsed.append(sent)
        return validate(sent)

    monkeypatch.setattr(Catalog, "model_validate", watched)
    f.send(InputKind.CATALOG, "replace-catalog", *raw)
    assert len(parsed) == 1
    assert accepted.catalog_of(raw).model("k") is not None, "what is not kept is parsed"


def test_a_steady_fleet_has_nothing_unfinished_and_a_degraded_one_says_what_is() -> None:
    f = running(model("m"))
    assert (phase(f), text(f)) == ("steady", "everything wanted is ready")
    f.catalog(catalog(f, model("m", 9, 2)))
    f.run(60)
    assert phase(f) == "degraded"
    assert text(f).startswith("it comes no further by itself: model/m ")
