"""The parts of the sinks by themselves: addresses, the workers' file, what is idle, what HAProxy and Envoy are told."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.sinks import envoy, envoy_text, haproxy_text
from activities.sinks.addresses import resolve, split
from activities.sinks.book import Book, Leaving, Place, changed_models
from activities.sinks.counting import Counting
from activities.sinks.envoy import Host, hosts_in
from activities.sinks.files import LAYOUTS
from activities.sinks.haproxy_cli import MasterSocket
from activities.sinks.kept import Control, KeptSink, Look, Scope
from activities.sinks.sink import RouterError
from activities.sinks.smg import LISTED_WITHIN_S, Absent
from llmgw import table as tables
from llmgw.calls import Delta, PublishCall
from llmgw.ids import ModelName, ReplicaId, RouterId
from llmgw.wire import Endpoint, ModelState, RouterTable, TableModel, Token

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


def test_haproxys_and_envoys_checks_come_as_often_as_the_operator_says() -> None:
    one = book(endpoint("a")).model_copy(update={"settings": {"check_every_s": "30"}})
    text = haproxy_text.config_text(haproxy_text.wanted_of(one), one, Path("/x.map")).decode()
    assert "check inter 30s" in text
    [cluster] = json.loads(envoy_text.files_of(one, Path("/x"))["cds.json"])["resources"]
    assert {cluster["health_checks"][0][name] for name in ("interval", "no_traffic_interval")} == {"30s"}


async def test_haproxy_is_told_many_things_on_one_line_and_each_answer_counts(tmp_path: Path) -> None:
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.read()).decode().strip()
        lines.append(line)
        for command in line.split(";"):
            writer.write(b"No such server.\n\n" if command.endswith(" s77") else b"\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "s"):
        master = MasterSocket(tmp_path / "s")
        await master.tell(f"enable health b/s{n}" for n in range(70))
        assert len(lines) == 1
        with pytest.raises(RouterError, match="No such server"):
            await master.tell(f"enable health b/ s{n}" for n in range(700))
    assert all(len(line) < 16_384 for line in lines), "what HAProxy reads as one line"
    assert sum(line.count(";") + 1 for line in lines) <= 770


async def test_a_reload_that_failed_is_known_by_the_masters_count(tmp_path: Path) -> None:
    told = ["7 master 1 [failed: 1] 0d00h00m03s 2.6.12", "# workers", "9 worker 1 0d00h00m03s 2.6.12", "# programs"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write("\n".join(["#<PID> <type> <reloads> <uptime> <version>", *told]).encode())
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "s"):
        found = await MasterSocket(tmp_path / "s").processes()
    assert (found.master, found.worker, found.former, found.reloads, found.failed) == (7, 9, (), 1, 1)


async def test_servers_of_some_backends_are_read_from_several_tables(tmp_path: Path) -> None:
    head = "# pxname,svname,addr,uweight,bck,status,scur,qcur,stot,lastsess,"
    row = "{0},{0}-1,10.0.0.1:80,100,0,UP,1,0,5,3,"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for command in (await reader.read()).decode().strip().split(";"):
            name = command.split()[3]
            known = f"{head}\n{row.format(name)}\n\n"
            writer.write((known if name != "absent" else "No such proxy.\n\n").encode())
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "s"):
        rows = await MasterSocket(tmp_path / "s").servers(backends=["a", "absent", "b"])
    assert [(row.backend, row.server, row.in_flight, row.idle_s) for row in rows] == [
        ("a", "a-1", 1, 3.0),
        ("b", "b-1", 1, 3.0),
    ]


def test_envoys_hosts_are_read_from_its_text_whatever_their_address() -> None:
    lines = ["observability_name::m.1", "default_priority::max_requests::1000"]
    for address, flags in (("10.0.0.1:80", "healthy"), ("[::1]:80", "/failed_active_hc/eds_status_draining")):
        told = {
            "rq_active": "2",
            "rq_total": "9",
            "hostname": "",
            "health_flags": flags,
            "weight": "7",
            "priority": "1",
        }
        lines += [f"{address}::{name}::{value}" for name, value in told.items()]
    hosts = hosts_in("".join(f"m.1::{line}\n" for line in lines))
    assert hosts == {
        ("m.1", "10.0.0.1:80"): Host(weight=7, level=1, picked=True, in_flight=2, requests=9),
        ("m.1", "[::1]:80"): Host(weight=7, level=1, picked=False, in_flight=2, requests=9),
    }


async def test_envoy_is_not_told_of_more_models_than_it_can_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "most").write_text("6\n")
    monkeypatch.setattr(envoy, "WATCHES", tmp_path / "most")
    told = book(endpoint("m-1"), models=("m", "n", "o"))
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1", trust_env=False) as client:
        with pytest.raises(RouterError, match=r"3 models.*sysctl fs\.inotify\.max_user_instances="):
            await envoy.EnvoyControl(tmp_path, client).tell(told, None)
    assert [path.name for path in tmp_path.iterdir()] == ["most"]  # noqa: ASYNC240 - nothing else runs


IDS = st.sampled_from(["a-1", "a-2", "b-1", "b-2"])


@st.composite
def some_books(draw: st.DrawFn) -> Book:
    """A book of two models, some of whose endpoints leave or stand in."""
    made = {id_: endpoint(id_, id_[0], f"http://10.0.0.{draw(st.integers(1, 2))}:80") for id_ in draw(st.sets(IDS))}
    leaving = tuple(made.pop(id_) for id_ in list(made) if draw(st.booleans()))
    models = tuple(sorted({e.models[0] for e in made.values()} | draw(st.sets(st.sampled_from("ab")))))
    found = book(*made.values(), leaving=leaving, models=models)
    stand_in = {ReplicaId("wake-a"): endpoint("wake-a", "a")} if draw(st.booleans()) else {}
    addresses = {**found.addresses, **dict.fromkeys(stand_in, "10.0.0.9:80")}
    return found.model_copy(update={"stand_ins": stand_in, "addresses": addresses})


@given(before=some_books(), after=some_books())
def test_what_is_the_same_in_two_books_is_left_out_of_what_is_told(before: Book, after: Book) -> None:
    changed = changed_models(before, after)
    same = {"a", "b"} - changed
    for made in (envoy_text.files_of, lambda told, _: _servers_of(told)):
        old, new = made(before, Path("/x")), made(after, Path("/x"))
        for name in same:
            file = envoy_text.endpoints_file(name)
            assert old.get(file) == new.get(file)
    leaving = {gone.endpoint.models[0] for gone in (*before.leaving.values(), *after.leaving.values())}
    assert leaving <= changed, "what leaves is looked at until it is gone"
    assert changed_models(after, after) == {gone.endpoint.models[0] for gone in after.leaving.values()}


def _servers_of(told: Book) -> dict[str, object]:
    """HAProxy's servers by the model's file name, for comparing with Envoy's."""
    servers = haproxy_text.wanted_of(told).servers.values()
    return {
        envoy_text.endpoints_file(name): sorted(
            (s.at, s.line()) for s in servers if s.backend == haproxy_text.backend_of(name)
        )
        for name in "ab"
    }


class Recorded:
    """A router that does as it is told once it is `able`."""

    def __init__(self) -> None:
        self.able = True
        self.told: list[Book | None] = []

    async def tell(self, book: Book, before: Book | None) -> None:
        del book
        self.told.append(before)
        if not self.able:
            raise RouterError("not now")

    async def look(self, book: Book, changed: Scope = None) -> Look:
        del book, changed
        return Look("x", use=None)

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        del book
        return idle


async def test_what_was_told_and_not_seen_to_be_held_is_no_base_for_a_difference(tmp_path: Path) -> None:
    """A call that ran out of time leaves the router anywhere between two tables."""
    router = Recorded()

    @contextlib.asynccontextmanager
    async def control(_: Place) -> AsyncIterator[Control]:
        yield router

    sink, seq = KeptSink(control), itertools.count(1)

    def call(delta: Delta | None = None) -> PublishCall:
        token = TOKEN.model_copy(update={"seq": next(seq)})
        url = f"file://{tmp_path}/x.json"
        return PublishCall(router=RouterId("r"), kind="x", url=url, token=token, revision=1, delta=delta)

    steps = [tables.build([], [endpoint(f"m-{n}") for n in range(count)]) for count in range(1, 5)]

    def delta(number: int) -> Delta:
        old, new = steps[number - 1], steps[number]
        return Delta(base=old.digest, digest=new.digest, put_endpoints=tables.difference(old, new).put_endpoints)

    first = call()
    whole = RouterTable(token=first.token, digest=steps[0].digest, endpoints=tuple(steps[0].endpoints.values()))
    await sink.put(first, whole)
    await sink.patch(call(delta(1)))
    router.able = False
    with pytest.raises(RouterError):
        await sink.patch(call(delta(2)))
    router.able = True
    await sink.patch(call(delta(2)))
    await sink.patch(call(delta(3)))
    bases = [None if before is None else before.digest for before in router.told]
    assert bases == [None, steps[0].digest, steps[1].digest, None, steps[2].digest]


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
    assert list(files)[-2:] == ["cds.json", "rds.json"]


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
