"""The parts of the sinks by themselves: addresses, the workers' file, what is idle, what HAProxy and Envoy are told."""

import asyncio
import json
from pathlib import Path

import pytest

from activities.sinks import envoy_text, haproxy_text
from activities.sinks.addresses import resolve, split
from activities.sinks.book import Book, Leaving, Place
from activities.sinks.counting import Counting
from activities.sinks.files import LAYOUTS
from activities.sinks.haproxy_cli import MasterSocket
from activities.sinks.sink import RouterError
from activities.sinks.smg import LISTED_WITHIN_S, Absent
from llmgw import table as tables
from llmgw.ids import ModelName, ReplicaId
from llmgw.wire import Endpoint, ModelState, TableModel, Token

TOKEN = Token(installation="i", fleet="f", epoch=1, seq=1)


def endpoint(id_: str, model: str = "m", url: str = "http://10.0.0.1:80", **fields: object) -> Endpoint:
    made = {"id": id_, "url": url, "models": (model,), "served_name": model, "engine": "stub", **fields}
    return Endpoint.model_validate(made)


def book(*endpoints: Endpoint, leaving: tuple[Endpoint, ...] = (), models: tuple[str, ...] = ("m",)) -> Book:
    rows = [TableModel(name=ModelName(name), state=ModelState.READY) for name in models]
    table = tables.build(rows, endpoints)
    return Book(
        token=TOKEN,
        digest=table.digest,
        total=table.total,
        models=dict(table.models),
        endpoints=dict(table.endpoints),
        addresses={e.id: e.url.removeprefix("http://") for e in endpoints},
        leaving={e.id: Leaving(endpoint=e, address=e.url.removeprefix("http://"), at_s=0.0) for e in leaving},
    )


async def test_one_unknown_host_leaves_only_its_own_endpoints_out() -> None:
    found = await resolve(
        [
            endpoint("a", url="http://127.0.0.1:81"),
            endpoint("b", url="http://no-such-host.invalid:81"),
            endpoint("c", url="https://127.0.0.1:81"),
            endpoint("d", url="http://[::1]:81"),
        ],
        {},
    )
    assert found.addresses == {"a": "127.0.0.1:81", "d": "[::1]:81"}
    assert "no-such-host" in found.left_out[ReplicaId("b")]
    assert "no plain http" in found.left_out[ReplicaId("c")]
    assert split("[::1]:81") == ("::1", 81)


def test_a_book_comes_back_as_it_was_written_and_a_broken_one_is_none(tmp_path: Path) -> None:
    place = Place("r", f"file://{tmp_path}/x.json", {})
    assert place.read() is None
    told = book(endpoint("m-1"), leaving=(endpoint("m-2"),))
    place.write(told)
    assert place.read() == told
    assert told.table.digest == told.digest
    place.book_path.write_text("{")
    assert place.read() is None


async def test_only_one_may_tell_a_router_at_a_time(tmp_path: Path) -> None:
    place = Place("r", f"file://{tmp_path}/x.json", {})
    async with place.writing(1.0) as first, place.writing(0.0) as second:
        assert (first, second) == (True, False)
    async with place.writing(0.0) as again:
        assert again


async def test_what_cannot_be_written_is_said_with_its_path(tmp_path: Path) -> None:
    place = Place("r", f"file://{tmp_path}/absent/x.json", {})
    with pytest.raises(RouterError, match="absent"):
        place.write(book())


def test_the_idle_clock_starts_when_an_endpoint_is_first_seen_and_with_every_use() -> None:
    now = [100.0]
    counting = Counting(lambda: now[0])
    one = ReplicaId("m-1")
    assert counting.use(one, counter=5, in_flight=0).idle_s == 0.0
    now[0] = 130.0
    assert counting.use(one, counter=5, in_flight=0).idle_s == 30.0
    assert counting.use(one, counter=6, in_flight=0).idle_s == 0.0
    now[0] = 150.0
    assert counting.use(one, counter=6, in_flight=1).idle_s == 0.0
    now[0] = 155.0
    assert counting.use(one, counter=6, in_flight=0).idle_s == 5.0


def test_absent_workers_are_lost_after_a_while_and_later_each_time_it_was_in_vain() -> None:
    now = [0.0]
    absent, missing = Absent(lambda: now[0]), [ReplicaId("m-1")]
    second, third = TOKEN.model_copy(update={"seq": 2}), TOKEN.model_copy(update={"seq": 3})
    assert absent.lost(TOKEN, missing) == missing  # the first look of all
    assert absent.lost(second, missing) == ()  # it was told a moment ago
    now[0] = 2 * LISTED_WITHIN_S
    assert absent.lost(second, missing) == missing
    assert absent.lost(third, missing) == ()
    now[0] += 2 * LISTED_WITHIN_S
    assert absent.lost(third, missing) == ()
    assert absent.lost(third, ()) == ()
    assert absent.lost(third, missing) == missing  # it was listed, and is gone: restarted


def test_haproxys_weights_keep_their_ratio_and_its_names_never_meet() -> None:
    wanted = haproxy_text.wanted_of(
        book(endpoint("a", weight=10_000), endpoint("b", weight=100), endpoint("c", weight=0))
    )
    assert [wanted.servers[ReplicaId(i)].weight for i in "abc"] == [256, 3, 0]
    small = haproxy_text.wanted_of(book(endpoint("a", weight=200), endpoint("b", weight=100)))
    assert [small.servers[ReplicaId(i)].weight for i in "ab"] == [200, 100]
    assert haproxy_text.backend_of("a/b") != haproxy_text.backend_of("a-b")


def test_haproxys_files_follow_from_the_table_alone() -> None:
    one = book(endpoint("a"), endpoint("b", priority=4), models=("m", "asleep"))
    text = haproxy_text.config_text(haproxy_text.wanted_of(one), one, Path("/x.map")).decode()
    assert "server a 10.0.0.1:80 weight 100 check" in text
    assert "server b 10.0.0.1:80 weight 100 backup check" in text
    assert text.count("\nbackend ") == 2
    later = one.model_copy(update={"token": TOKEN.model_copy(update={"seq": 9})})
    again = haproxy_text.config_text(haproxy_text.wanted_of(later), later, Path("/x.map"))
    assert haproxy_text.without_head(again) == haproxy_text.without_head(text.encode())


async def test_a_socket_that_is_no_master_is_named(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(b"Unknown command\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "s"):
        with pytest.raises(RouterError, match="no master socket"):
            await MasterSocket(tmp_path / "s").processes()
    with pytest.raises(RouterError, match="cannot connect"):
        await MasterSocket(tmp_path / "absent").processes()


def test_envoys_leaving_hosts_stay_listed_unless_their_address_serves_again() -> None:
    gone = endpoint("m-1", url="http://10.0.0.1:80")
    files = envoy_text.files_of(book(endpoint("m-2", url="http://10.0.0.2:80"), leaving=(gone,)), Path("/x"))
    hosts = _hosts(files)
    assert hosts == {"10.0.0.1": "DRAINING", "10.0.0.2": "HEALTHY"}
    reused = envoy_text.files_of(book(endpoint("m-3", url="http://10.0.0.1:80"), leaving=(gone,)), Path("/x"))
    assert _hosts(reused) == {"10.0.0.1": "HEALTHY"}
    assert list(files)[-2:] == ["cds.yaml", "rds.yaml"]


def _hosts(files: dict[str, bytes]) -> dict[str, str]:
    (assignment,) = json.loads(files[envoy_text.endpoints_file("m")])["resources"]
    hosts = [host for group in assignment["endpoints"] for host in group["lb_endpoints"]]
    return {h["endpoint"]["address"]["socket_address"]["address"]: h["health_status"] for h in hosts}


def test_files_for_other_readers_have_their_documented_form() -> None:
    told = book(endpoint("m-1"), endpoint("n-1", "n", "http://10.0.0.2:81"), models=("m", "n"))
    texts = {kind: json.loads(layout.render(told, {})) for kind, layout in LAYOUTS.items()}
    assert texts["llm-d"]["endpoints"][1] == {
        "name": "n-1",
        "address": "10.0.0.2",
        "port": "81",
        "labels": {"llmgw-model": "n", "llmgw-engine": "stub", "llmgw-pool": "default"},
    }
    assert texts["production-stack"] == {
        "service_discovery": "static",
        "routing_logic": "roundrobin",
        "static_backends": "http://10.0.0.1:80,http://10.0.0.2:81",
        "static_models": "m,n",
    }
    labels = {"model": "m", "replica": "m-1", "node": "10.0.0.1", "engine": "stub", "pool": "default"}
    assert texts["prometheus"][0] == {"targets": ["10.0.0.1:80"], "labels": labels}
