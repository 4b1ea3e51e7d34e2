"""The table of router kinds: every row has a sink and a place in the docs, and says what it cannot express."""

from dataclasses import replace
from pathlib import Path

import pytest

from activities.outward import Callers
from activities.settings import Outward
from activities.sinks.kinds import sinks, watching
from llmgw.catalog import Catalog
from llmgw.ids import ModelName
from llmgw.recent import Recent
from llmgw.router_kinds import KINDS, faults, limits
from llmgw.table import build
from llmgw.validation import check
from llmgw.views import status
from llmgw.wire import Endpoint, ModelState, TableModel
from tests.core.worlds import NOW, raw_catalog, serving

PAGE = (Path(__file__).parent.parent.parent / "docs" / "routers.md").read_text()
SETTINGS = {
    "haproxy": ("unix:///run/m.sock", {"file": "/etc/h.cfg"}),
    "envoy": ("http://e:9901", {"directory": "/run/xds"}),
    "smg": ("http://s:1", {"state": "/var/told"}),
    "smg-file": ("http://s:1", {"file": "/run/w.json"}),
    "llm-d": ("file:///run/e.json", {}),
    "production-stack": ("file:///run/p.json", {}),
    "prometheus": ("file:///run/t.json", {}),
    "native": ("http://r:1", {}),
}


def endpoint(id_: str, **fields: object) -> Endpoint:
    made = {"id": id_, "url": "http://a:1", "models": ("m",), "served_name": "m", "engine": "stub", **fields}
    return Endpoint.model_validate(made)


M = TableModel(name=ModelName("m"), state=ModelState.READY)


def test_every_kind_has_a_sink_and_all_but_ours_are_looked_at() -> None:
    assert set(sinks(Callers(Outward()))) == set(KINDS)
    assert set(watching(Outward())) == set(KINDS) - {"native"}


@pytest.mark.parametrize("kind", list(KINDS))
def test_docs_have_every_kind_and_setting(kind: str) -> None:
    _, _, section = PAGE.partition(f"\n## {kind}\n")
    section = section.partition("\n## ")[0]
    assert section
    assert {s.name for s in KINDS[kind].settings if f"`{s.name}`" not in section} == set()
    assert f"| `{kind}` | " in PAGE


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_rightly_declared_router_is_accepted(kind: str) -> None:
    url, settings = SETTINGS[kind]
    router = {"id": "r", "kind": kind, "url": url, "settings": settings}
    assert check(raw_catalog("m", routers=[router])).problems == ()


@pytest.mark.parametrize(
    ("router", "where", "words"),
    [
        ({"kind": "haprox"}, "kind", 'did you mean "haproxy"'),
        ({"kind": "haproxy", "url": "http://h:1", "settings": {"file": "/a"}}, "url", "unix:///PATH"),
        ({"kind": "haproxy", "url": "unix:///m"}, "settings", "needs the setting `file`"),
        ({"kind": "envoy", "settings": {"directory": "xds"}}, "settings.directory", "no absolute path"),
        (
            {"kind": "envoy", "settings": {"directory": "/x", "check_every_s": "0"}},
            "settings.check_every_s",
            "no whole number of 1 to 3600",
        ),
        (
            {"kind": "smg", "settings": {"state": "/s", "key": "k"}},
            "settings.key",
            "known: activator, key_file, metrics, state",
        ),
        ({"settings": {"file": "/f"}}, "settings.file", "kind native takes no settings"),
        ({"kind": "prometheus", "url": "file://host/x"}, "url", "absolute path"),
        ({"kind": "prometheus", "url": "file:///"}, "url", "absolute path"),
    ],
)
def test_what_is_wrong_with_a_router_is_said_with_its_place(router: dict[str, object], where: str, words: str) -> None:
    problems = check(raw_catalog("m", routers=[{"id": "r", "url": "http://r:1", **router}])).problems
    told = [p.sentence() for p in problems if p.path == f"routers[0].{where}"]
    assert len(told) == 1
    assert words in told[0]


def test_all_faults_of_a_router_are_named_at_once() -> None:
    assert len(list(faults("envoy", "file:///x", {"state": "a", "direktory": "/b"}))) == 4


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plain_table_is_within_every_kinds_means(kind: str) -> None:
    assert limits(kind, [M], [endpoint("m-1"), endpoint("m-2")]) == ()


@pytest.mark.parametrize("kind", [k for k, row in KINDS.items() if row.carries_traffic])
def test_whatever_a_kind_lacks_is_said_exactly_when_the_table_has_it(kind: str) -> None:
    row = KINDS[kind]
    cases = [
        (row.weights, [M], [endpoint("m-1"), endpoint("m-2", weight=7)]),
        (row.levels > 2, [M], [endpoint(f"m-{i}", priority=i) for i in range(3)]),
        (row.aliases, [M.model_copy(update={"aliases": ("chat",)})], [endpoint("m-1")]),
        (row.renames, [M], [endpoint("m-1", served_name="other")]),
        (row.states, [M.model_copy(update={"state": ModelState.ASLEEP})], []),
        (row.names, [M], [endpoint("m-1"), endpoint("n-1", models=("n",), served_name="n")]),
    ]
    for can, models, endpoints in cases:
        assert bool(limits(kind, models, endpoints)) is not can


def test_the_catalogs_verdict_and_the_status_name_what_a_router_cannot() -> None:
    router = {"id": "gate", "kind": "smg", "url": "http://s:1", "settings": {"state": "/var/told"}}
    models = [
        {
            "name": "m",
            "profiles": [
                {"name": "a", "engine": "stub", "weight": 10},
                {"name": "b", "engine": "stub", "priority": 1},
            ],
        }
    ]
    raw = {**raw_catalog(routers=[router]), "models": models}
    warnings = [w.sentence() for w in check(raw).warnings]
    assert any("cannot weigh" in w for w in warnings)
    assert any("no priorities" in w for w in warnings)

    world = serving("m")
    table = build([M], [endpoint("m-1"), endpoint("m-2", priority=1)])
    world = replace(world, catalog=Catalog.model_validate(raw), table=table)
    (row,) = status(world, Recent(), NOW).routers
    assert [limit.split(":")[0] for limit in row.limits] == ["knows no priorities"]
