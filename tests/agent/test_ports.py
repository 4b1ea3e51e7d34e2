"""Ports are bound before they are promised, and lost to a stranger without costing an attempt."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.portloss import tells_of_a_lost_port
from agent.ports import NoPort, Ports, overlap_with_clients
from agent.replica import MOST_MOVES
from llmgw.wire import LaunchSpec
from tests.agent.running import Agent, start, stop, stub


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "squatter"
    made.mkdir()
    yield made
    (made / "let-go").touch()


def squatted(folder: Path, times: int) -> LaunchSpec:
    """A stub whose port a stranger takes, that many times, before it can bind it."""
    base = stub()
    head = ("${llmgw:python}", "-m", "tests.agent.squatter", str(folder), str(times), "${llmgw:port}")
    return base.model_copy(update={"argv": (*head, *base.argv), "extra_ports": ("rpc",)})


async def test_an_engine_whose_port_was_taken_serves_on_another_at_no_cost(agent: Agent, folder: Path) -> None:
    await agent.send(1, start("m-1", squatted(folder, 2)))
    row = await agent.row("m-1", "ready", "failed")
    assert (row.state, row.attempt, row.exit_code) == ("ready", 1, None)
    tried = [int(port) for port in (folder / "calls").read_text().split()]
    assert len(set(tried)) == 3
    assert row.port == tried[-1]
    assert row.url is not None
    assert row.url.endswith(f":{row.port}")
    record = agent.ledger()["records"]["m-1"]
    assert record["port"] == row.port
    assert record["extra_ports"]["rpc"] not in tried
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert agent.ours() == []


async def test_an_engine_that_finds_no_port_at_all_fails_with_its_last_words(agent: Agent, folder: Path) -> None:
    await agent.send(1, start("m-1", squatted(folder, 99)))
    row = await agent.row("m-1", "failed")
    assert len((folder / "calls").read_text().split()) == 1 + MOST_MOVES
    assert tells_of_a_lost_port(row.log_tail)


async def test_extra_ports_are_reserved_like_the_first(agent: Agent) -> None:
    base = stub()
    launch = base.model_copy(update={"extra_ports": ("a", "b", "c"), "env": {"A": "${llmgw:port:a}"}})
    await agent.send(1, *(start(f"m-{n}", launch) for n in range(3)))
    for n in range(3):
        await agent.row(f"m-{n}", "ready")
    records = agent.ledger()["records"].values()
    taken = [port for record in records for port in (record["port"], *record["extra_ports"].values())]
    assert len(taken) == len(set(taken)) == 12


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "ERROR:    [Errno 98] Address already in use",
        "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18085",
        "main: exiting due to HTTP server error",
        'Error: Os { code: 98, kind: AddrInUse, message: "Address already in use" }',
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:30001')",
        "RuntimeError: port 30000 is already in use",
        "Error: failed to bind to 0.0.0.0:8080",
    ],
)
def test_what_engines_say_of_a_taken_port_is_known(line: str) -> None:
    assert tells_of_a_lost_port(("INFO loading", line, "bye"))


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory",
        "ValueError: port must be a number",
        "weights are in use",
        "WARNING failed to bind threads to NUMA node 1",
        "",
    ],
)
def test_other_ends_are_no_lost_port(line: str) -> None:
    assert not tells_of_a_lost_port((line,))


@pytest.mark.parametrize(
    ("lent", "reserved", "shared"),
    [
        ("32768\t60999\n", "\n", 0),
        ("1024\t60999\n", "\n", 1000),
        ("21900\t60999\n", "\n", 100),
        ("1024\t60999\n", "21000-21999\n", 0),
        ("1024\t60999\n", "8080,21000-21499\n", 500),
        ("nonsense", "", 0),
    ],
)
def test_a_range_that_the_kernel_lends_to_clients_is_told_of(
    tmp_path: Path, lent: str, reserved: str, shared: int
) -> None:
    settings = tmp_path / "sys/net/ipv4"
    settings.mkdir(parents=True)
    (settings / "ip_local_port_range").write_text(lent)
    (settings / "ip_local_reserved_ports").write_text(reserved)
    told = overlap_with_clients(21000, 21999, tmp_path)
    assert told.startswith(f"{shared} of ports") if shared else told == ""
    assert overlap_with_clients(21000, 21999, tmp_path / "elsewhere") == ""


def linger(*, over: bool) -> tuple[int, list[socket.socket]]:
    """(port of a server that listens no more, and has closed its one connection or not; what is still open)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = server.accept()
    if not over:
        return port, [client, served]
    served.close()  # first: then it is the server's side that lingers
    assert client.recv(1) == b""
    client.close()
    return port, []


def test_a_port_is_not_kept_by_connections_that_are_over() -> None:
    port, _ = linger(over=True)
    with socket.socket() as strict, pytest.raises(OSError, match="in use"):
        strict.bind(("", port))
    ports = Ports(port, port)
    assert ports.take(1, 0.0) == (port,)
    ports.give_back([port])


def test_a_port_with_a_connection_that_lives_is_not_given_out() -> None:
    port, still_open = linger(over=False)
    try:
        with pytest.raises(NoPort):
            Ports(port, port).take(1, 0.0)
    finally:
        for one in still_open:
            one.close()
