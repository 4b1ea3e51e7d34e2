"""The agent's pure parts: launches, device books, ports, declared and listed devices, what an engine's answers mean."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.admission import View, admit
from agent.auth import is_known, token_source
from agent.declared import declared_devices, parse_declared
from agent.devices import DeclaredSource, Holding, Known, Whose
from agent.enginelogs import EngineLogs, follow, read_tail
from agent.launch import Place, render
from agent.ledger import Record, StopStep
from agent.liveness import next_activity
from agent.local import Executables, Secrets
from agent.ports import REST_S, NoPort, Ports
from agent.proc import parse_stat
from agent.readiness import (
    listed_models,
    loading_interval_s,
    parse_figures,
    ready_interval_s,
)
from agent.stopping import rungs
from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import (
    Device,
    DeviceClaim,
    DeviceHealth,
    DeviceNaming,
    DeviceSelection,
    Inventory,
    LaunchSpec,
    Mark,
    MetricNames,
    RefusalCode,
    StopBehaviour,
)
from tests.agent.running import start, stub

# --- launches ------------------------------------------------------------------------------------------------------

DEVICES = tuple(Device(id=DeviceId(f"GPU-{n}"), index=n, kind="h100", memory_mib=1000) for n in range(3))


def test_arguments_pass_item_for_item_and_only_known_placeholders_are_replaced() -> None:
    argv = (
        "x",
        "",
        "--a b",
        "$HOME",
        "${llmgw:port}",
        "${llmgw:port}",
        "h=${llmgw:host}:${llmgw:port:rpc}",
        "${port}",
        "",
    )
    launch = LaunchSpec(engine="command", argv=argv, served_name="m", env={"W": "${llmgw:weights}/x"})
    place = Place(host="0.0.0.0", port=7, extra_ports={"rpc": 8}, weights="/w", ordinals={})
    made = render(launch, place, (), {"PATH": "/bin", "LLMGW_TOKEN_FILE": "/secret", "LLMGW_SECRET_A": "v"})
    assert made.argv == ("x", "", "--a b", "$HOME", "7", "7", "h=0.0.0.0:8", "${port}", "")
    assert made.env == {"PATH": "/bin", "W": "/w/x"}, "the agent's own settings and secrets are nobody's inheritance"


@pytest.mark.parametrize(
    ("naming", "names"), [(DeviceNaming.UUID, "GPU-2,GPU-0"), (DeviceNaming.INDEX, "2,0")], ids=["uuid", "index"]
)
def test_devices_reach_an_engine_as_its_row_says_in_the_order_of_the_claims(naming: DeviceNaming, names: str) -> None:
    selection = DeviceSelection(naming=naming, variables=("CUDA_VISIBLE_DEVICES",), extra_env={"ORDER": "BUS"})
    launch = LaunchSpec(engine="vllm", argv=("x",), served_name="m", devices=selection)
    claims = (DeviceClaim(device=DeviceId("GPU-2")), DeviceClaim(device=DeviceId("GPU-0")))
    made = render(
        launch,
        Place("h", 1, {}, "", {device.id: device.index for device in DEVICES}),
        claims,
        {"CUDA_VISIBLE_DEVICES": "all"},
    )
    assert made.env == {"CUDA_VISIBLE_DEVICES": names, "ORDER": "BUS"}


# --- books ---------------------------------------------------------------------------------------------------------


def _view(*held: tuple[str, int | None], **fields: Any) -> View:
    records = tuple(
        Record(
            start=start(f"r-{n}", stub()).model_copy(
                update={"claims": (DeviceClaim(device=DeviceId(device), memory_mib=mib),), "host_memory_mib": 100}
            ),
            mark=Mark(installation="i", fleet="f", replica=ReplicaId(f"r-{n}"), epoch=1, seq=1),
            home="/",
            port=1,
        )
        for n, (device, mib) in enumerate(held)
    )
    sick = Device(id=DeviceId("GPU-sick"), index=3, kind="h100", memory_mib=1000, health=DeviceHealth.BAD)
    dumb = Device(id=DeviceId("GPU-dumb"), index=4, kind="h100")
    inventory = Inventory(devices=(*DEVICES, sick, dumb), host_memory_mib=1000)
    return View(inventory, fields.get("quarantined", {}), records, Executables(), Secrets(None, {}))


@pytest.mark.parametrize(
    ("held", "wanted", "code"),
    [
        ([], [("GPU-0", None)], None),
        ([("GPU-0", None)], [("GPU-1", None)], None),
        ([("GPU-0", None)], [("GPU-0", None)], RefusalCode.DEVICE_CLAIMED),
        ([("GPU-0", None)], [("GPU-0", 1)], RefusalCode.DEVICE_CLAIMED),
        ([("GPU-0", 1)], [("GPU-0", None)], RefusalCode.DEVICE_CLAIMED),
        ([("GPU-0", 600)], [("GPU-0", 400)], None),
        ([("GPU-0", 600)], [("GPU-0", 401)], RefusalCode.DEVICE_CLAIMED),
        ([("GPU-0", 300), ("GPU-0", 300)], [("GPU-0", 401)], RefusalCode.DEVICE_CLAIMED),
        ([], [("GPU-0", 1001)], RefusalCode.DEVICE_CLAIMED),
        ([], [("GPU-0", None), ("GPU-0", None)], RefusalCode.DEVICE_CLAIMED),
        ([], [("GPU-0", 600), ("GPU-0", 600)], RefusalCode.DEVICE_CLAIMED),
        ([], [("GPU-sick", None)], RefusalCode.DEVICE_QUARANTINED),
        ([], [("GPU-dumb", None)], None),
        ([], [("GPU-dumb", 10)], RefusalCode.DEVICE_UNKNOWN),
        ([], [("GPU-9", None)], RefusalCode.DEVICE_UNKNOWN),
    ],
)
def test_no_device_is_given_out_beyond_what_it_has(
    held: list[tuple[str, int | None]], wanted: list[tuple[str, int | None]], code: RefusalCode | None
) -> None:
    claims = tuple(DeviceClaim(device=DeviceId(device), memory_mib=mib) for device, mib in wanted)
    refusal = admit(start("m-1", stub()).model_copy(update={"claims": claims}), _view(*held))
    assert (refusal and refusal.code) == code


def test_host_memory_is_booked_too() -> None:
    wanted = start("m-1", stub())
    assert admit(wanted.model_copy(update={"host_memory_mib": 900}), _view(("GPU-0", None))) is None
    refusal = admit(wanted.model_copy(update={"host_memory_mib": 901}), _view(("GPU-0", None)))
    assert refusal is not None
    assert refusal.code is RefusalCode.NO_MEMORY


def test_an_allow_list_holds_for_names_paths_and_the_agents_own_python() -> None:
    only = Executables(allowed=("sh",))
    assert isinstance(only.find("sh"), str)
    assert isinstance(only.find("/bin/sh"), str)
    for other in ("/bin/cat", "${llmgw:python}", "/tmp/evil/sh"):
        assert not isinstance(only.find(other), str)
    assert Executables().find("${llmgw:python}") == sys.executable


# --- ports ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def first_port() -> Iterator[int]:
    """Of three neighbours that nobody has bound."""
    for candidate in range(18000, 19000, 3):
        bound = [socket.socket() for _ in range(3)]
        try:
            for offset, one in enumerate(bound):
                one.bind(("", candidate + offset))
        except OSError:
            continue
        finally:
            for one in bound:
                one.close()
        yield candidate
        return
    pytest.fail("no three free ports")


def test_ports_rotate_and_rest_until_released_or_an_hour_has_passed(first_port: int) -> None:
    ports = Ports(first_port, first_port + 2)
    (one,) = ports.take(1, 0.0)
    ports.rest([one], 0.0)
    two, three = ports.take(2, 1.0)
    assert {one, two, three} == {first_port, first_port + 1, first_port + 2}
    with pytest.raises(NoPort, match="2 in use by replicas, 1 resting"):
        ports.take(1, 2.0)
    ports.release([one, two])
    assert ports.take(1, 3.0) == (one,), "released, and a port in use is not"
    ports.rest([one], 10.0)
    with pytest.raises(NoPort):
        ports.take(1, 10.0 + REST_S - 1)
    assert ports.take(1, 10.0 + REST_S) == (one,)
    ports.give_back([one, two, three])


def test_extra_ports_are_let_go_with_the_first_one_also_by_a_later_agent(first_port: int) -> None:
    ports = Ports(first_port, first_port + 2)
    first, second, other = ports.take(3, 0.0)
    ports.rest([first, second], 0.0)
    ports.rest([other], 0.0)
    later = Ports(first_port, first_port + 2)
    later.restore(ports.resting, ports.companions)
    later.release([second])
    assert second not in later.resting, "named itself"
    later.restore(ports.resting, ports.companions)
    later.release([first])
    assert set(later.resting) == {other}
    assert later.companions == {}


def test_a_port_that_somebody_else_has_is_passed_over_and_ours_is_bound_until_handed_over(first_port: int) -> None:
    ports = Ports(first_port, first_port + 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first_port))
        other.listen()
        (mine,) = ports.take(1, 0.0)
        assert mine == first_port + 1
    with socket.socket() as engine:
        with pytest.raises(OSError, match="in use"):
            engine.bind(("127.0.0.1", mine))
        ports.hand_over([mine])
        engine.bind(("127.0.0.1", mine))
    assert ports.take(1, 1.0) == (first_port,)
    ports.give_back([first_port])


def test_a_refused_want_takes_nothing(first_port: int) -> None:
    ports = Ports(first_port, first_port + 2)
    with pytest.raises(NoPort):
        ports.take(4, 0.0)
    taken = ports.take(3, 0.0)
    assert len(taken) == 3
    ports.give_back(taken)


# --- devices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("4xh100:80GiB", [("h100", 81920)] * 4),
        ("h100:81920", [("h100", 81920)]),
        ("2xA100 SXM:40g, cpu", [("A100 SXM", 40960)] * 2 + [("cpu", None)]),
        ('[{"kind": "h100", "memory_mib": 10, "count": 2}]', [("h100", 10)] * 2),
        ("[{kind: h100, id: GPU-1}]", [("h100", None)]),
    ],
)
def test_declared_devices(text: str, told: list[tuple[str, int | None]]) -> None:
    made = declared_devices(parse_declared(text), "machine", "n1")
    assert [(d.kind, d.memory_mib) for d in made] == told
    assert len({d.id for d in made}) == len(made)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0xh100", "it must be at least 1"),
        ("2xh100:80TB", "COUNTxKIND:MEMORY"),
        ("[{knd: h100}]", "kind"),
        ("[{kind: h100, id: a, count: 2}]", "an id or index names one device"),
        ("[{", "neither YAML nor JSON"),
        ("/nowhere/devices.yaml", "cannot read"),
    ],
)
def test_what_declares_no_devices_is_told_with_its_mend(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_declared(text)


def test_declared_identities_last_and_differ_between_nodes() -> None:
    four = parse_declared("4xsim:24GiB")
    assert declared_devices(four, "m", "n1") == declared_devices(four, "m", "n1")
    ids = {d.id for node in ("n1", "n2") for d in declared_devices(four, "m", node)}
    assert len(ids) == 8


def test_a_machine_without_devices_is_known_to_have_none() -> None:
    inventory = DeclaredSource((), "m", "n1").read(Holding(lambda _: Whose.FOREIGN), Known()).inventory
    assert (inventory.devices, inventory.complete) == ((), True)


# --- what an engine says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        (b'{"data": [{"id": "a"}], "models": [{"name": "a"}, {"name": "c"}]}', ["a", "c"]),
        (b'{"data": null}', []),
        (b'[{"id": "a"}]', []),
        (b"<html>", []),
        (b'{"data": ["a", {"id": 3}]}', []),
    ],
)
def test_model_lists_of_all_kinds(body: bytes, names: list[str]) -> None:
    assert listed_models(body) == names


def test_figures_are_summed_over_labels_and_nonsense_is_passed_over() -> None:
    text = '# HELP x\nx{a="1}{",b="2"} 2\nx{a="2"} 3.5 1700000000\ny 7\nbroken\nz{ 1\n'
    assert parse_figures(text) == {"x": 5.5, "y": 7.0}


def test_use_is_what_moves_running_requests_or_tokens() -> None:
    launch = stub().model_copy(update={"metrics": MetricNames(running="r", tokens_total="t")})
    first = next_activity(None, {"r": 0.0, "t": 5.0}, launch, 10.0)
    still = next_activity(first, {"r": 0.0, "t": 5.0}, launch, 20.0)
    assert still is not None
    assert still.usage(30.0).idle_s == 20.0
    between = next_activity(still, {"r": 0.0, "t": 6.0}, launch, 30.0)
    assert between is not None
    assert between.usage(31.0).idle_s == 1.0, "a request came and went between two looks"
    busy = next_activity(between, {"r": 2.0, "t": 6.0}, launch, 40.0)
    assert busy is not None
    assert (busy.usage(50.0).in_flight, busy.usage(50.0).idle_s) == (2, 0.0)
    assert next_activity(None, {}, launch, 1.0) is None


def test_probes_are_quick_at_first_and_rare_for_the_quiet() -> None:
    assert [loading_interval_s(age) for age in (0, 1, 4, 600)] == [0.05, 0.05, 0.2, 1.0]
    assert [ready_interval_s(quiet, 0) for quiet in (0, 20, 10_000)] == [5.0, 20.0, 30.0]
    assert ready_interval_s(10_000, 1) == 1.0


def test_a_stop_goes_on_at_its_step() -> None:
    behaviour = StopBehaviour(term_limit_s=1, second_term_limit_s=2, kill_limit_s=3)
    assert [rung.limit_s for rung in rungs(behaviour, StopStep.TERM)] == [1, 2, 3]
    assert [rung.step for rung in rungs(behaviour, StopStep.KILL)] == [StopStep.KILL]


def test_process_lines_with_odd_names_and_zombies_with_threads() -> None:
    def line(name: bytes, state: bytes, threads: int) -> bytes:
        fields = [state, b"1", b"40", b"30", *[b"0"] * 13, str(threads).encode(), b"0", b"777", b"0"]
        return b"50 (" + name + b") " + b" ".join(fields)

    odd = parse_stat(line(b"VLLM::E) R (x", b"S", 1))
    assert (odd.pid, odd.group, odd.session, odd.start_ticks, odd.name) == (50, 40, 30, 777, "VLLM::E) R (x")
    assert not parse_stat(line(b"x", b"Z", 1)).alive
    assert parse_stat(line(b"x", b"Z", 4)).alive, "a dead leader whose threads run still holds what it held"


# --- logs, tokens --------------------------------------------------------------------------------------------------


async def test_a_log_over_its_limit_is_halved_and_followed_on(tmp_path: Path) -> None:
    logs = EngineLogs(tmp_path, limit_mib=1)
    path = logs.path(ReplicaId("m-1"), 2)
    path.write_bytes(b"old\n" + b"x" * 1024 * 1024)
    _, end = read_tail(path, 10, 100)
    over = iter([False, False, True])
    following = follow(path, end, lambda: next(over))
    with path.open("ab") as engine:
        engine.write(b"\nnews\n")
        engine.flush()
        assert await anext(following) == b"\nnews\n"
        logs.bound(ReplicaId("m-1"), 2)
        engine.write(b"after\n")
        engine.flush()
        assert [part async for part in following] == [b"after\n"]
    assert path.with_suffix(".log.1").read_bytes().endswith(b"news\n")
    assert logs.tail(ReplicaId("m-1"), 2) == ("after",)
    assert logs.latest("m-1") == path
    assert logs.latest("../m-1") is None


def test_tokens_rotate_without_a_restart_and_an_unreadable_file_keeps_the_last(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# ours\none\n\n")
    tokens = token_source(path)
    assert tokens() == ("one",)
    path.write_text("one\ntwo\n")
    path.touch()
    assert is_known("two", tokens())
    path.unlink()
    assert tokens() == ("one", "two")
    assert not is_known("three", tokens())
