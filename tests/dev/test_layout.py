"""Where a stack lives: one holder, ports that stay, a clear word when one is taken."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workers.devstack.layout import (
    NODES,
    USES,
    Ports,
    StackError,
    choose_ports,
    free_row,
    hold,
    is_free,
    remember_ports,
    remembered_ports,
)


def test_the_first_run_takes_the_ports_people_expect() -> None:
    ports = choose_ports(None, None, lambda _: True)
    assert {use.name: ports[use.name] for use in USES} == {use.name: use.preferred for use in USES}


def test_a_taken_port_moves_only_itself_and_never_onto_another() -> None:
    ports = choose_ports(None, None, lambda port: port not in {7811, 8080, 8081})
    assert (ports["router"], ports["node-a"], ports["node-b"]) == (8082, 7812, 7813)
    assert len(set(ports.uses.values())) == len(USES)


def test_two_stacks_on_one_machine_get_engine_ports_apart() -> None:
    first = choose_ports(None, None, lambda _: True)
    second = choose_ports(None, None, lambda port: port not in first.uses.values())
    ranges = [ports.engine_range(node) for ports in (first, second) for node in NODES]
    assert len(set(ranges)) == len(ranges)


def test_a_second_run_has_the_ports_of_the_first(tmp_path: Path) -> None:
    ports = choose_ports(None, 25_000, lambda _: True)
    remember_ports(tmp_path, ports)
    assert choose_ports(remembered_ports(tmp_path), None, lambda _: True) == ports


def test_a_second_run_names_every_port_that_another_program_took() -> None:
    kept = choose_ports(None, 25_000, lambda _: True)
    with pytest.raises(StackError) as error:
        choose_ports(kept, None, lambda port: port not in {kept["router"], kept["ui"]})
    assert f"{kept['router']} (the router)" in str(error.value)
    assert f"{kept['ui']} (Temporal's web UI)" in str(error.value)
    assert "--ports-from" in str(error.value)


def test_ports_asked_for_are_taken_in_a_row_or_refused() -> None:
    ports = choose_ports(choose_ports(None, 25_000, lambda _: True), 26_000, lambda _: True)
    assert sorted(ports.uses.values()) == list(range(26_000, 26_000 + len(USES)))
    with pytest.raises(StackError, match=r"--ports-from 26000: port 26002 \(the router\) is taken"):
        choose_ports(None, 26_000, lambda port: port != 26_002)


@pytest.mark.parametrize("first", [80, 65_500])
def test_a_row_outside_the_ports_there_are_is_refused(first: int) -> None:
    with pytest.raises(StackError, match="from 1024 to 65535"):
        choose_ports(None, first, lambda _: True)


def test_no_free_port_at_all_is_told() -> None:
    with pytest.raises(StackError, match="no port for Temporal: 7233 to"):
        choose_ports(None, None, lambda _: False)


@pytest.mark.parametrize("content", ["", "{}", '{"uses": {"temporal": "x"}}', "[]"])
def test_damaged_memory_of_ports_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    assert remembered_ports(tmp_path) is None


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_free_row_is_free_for_a_whole_stack() -> None:
    assert isinstance(choose_ports(None, free_row()), Ports)


HOLDER = """
import sys
from pathlib import Path
from workers.devstack.layout import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_has_one_stack_and_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    root = tmp_path / "state"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(StackError, match=rf"already runs on .*state \(process {holder.pid}\).*--state-dir"),
            hold(root),
        ):
            pytest.fail("two stacks held one folder")
        holder.kill()
        holder.wait()
        with hold(root):
            assert (root / "lock").read_text()
