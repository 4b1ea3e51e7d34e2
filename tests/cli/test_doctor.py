"""`llmgw doctor`: each thing that can be wrong is told with how to mend it, and health is told as health."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from cli import machine_checks
from cli.checkup import Checked, Health
from cli.failures import REFUSED
from cli.fleet_checks import IDLE_PHASES, SICK_PHASES
from llmgw.showing.phases import Phase
from llmgw.world import World
from tests.cli.fleets import Command, Raising, WorldFleet
from tests.core.worlds import serving
from workflows.client import UnreachableError

NOW_S = 1_800_000_000.0
WORKERS = {"w@ctl-1": 1.0, "w@ctl-2": 2.0}


class WatchedFleet(WorldFleet):
    """A fleet with its Temporal side: search attributes that are missing, workers that asked for work."""

    missing: tuple[str, ...] | None = ()
    polls: Mapping[str, float] = WORKERS

    async def missing_search_attributes(self) -> tuple[str, ...] | None:
        return self.missing


def answer(status: int = 200, date_s: float = NOW_S, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={"date": formatdate(date_s, usegmt=True), **headers}, text="{}\n")


def checks(command: Command, *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = command("doctor", "fleet", "--json", *args)
    return done.exit_code, {check["subject"]: check for check in json.loads(done.stdout)["checks"]}


def of(fleet: WorldFleet, response: httpx.Response | None = None) -> Command:
    reply = response or answer()
    return Command(fleet, agent=lambda request: reply, wall_s=NOW_S)


# --- the fleet -----------------------------------------------------------------------------------------------------


def test_a_sound_fleet_is_fine_from_temporal_to_each_router() -> None:
    code, found = checks(of(WatchedFleet(serving("m"))))
    assert code == 0
    assert {name: check["health"] for name, check in found.items()} == dict.fromkeys(
        ("Temporal", "search attributes", "workers", "workflow", "node node-a", "node node-b", "router edge-1"), "fine"
    )


def test_what_cannot_be_reached_ends_the_questions_and_says_where_it_was_looked_for() -> None:
    command = Command(error=UnreachableError("Temporal is not reached at t:1: nothing listens there"))
    code, found = checks(command)
    assert code == REFUSED
    assert list(found) == ["Temporal"]
    assert found["Temporal"]["what"] == "Temporal is not reached at t:1"
    assert "nothing listens there" in found["Temporal"]["mend"]


def test_search_attributes_that_are_missing_come_with_the_commands_that_make_them() -> None:
    fleet = WatchedFleet(serving("m"))
    fleet.missing = ("FleetPhase", "FleetRejected")
    code, found = checks(of(fleet))
    assert code == 0
    assert "--name FleetPhase --type Keyword" in found["search attributes"]["mend"]
    assert "--name FleetRejected --type Bool" in found["search attributes"]["mend"]


def test_a_service_that_does_not_tell_its_search_attributes_is_a_doubt() -> None:
    fleet = WatchedFleet(serving("m"))
    fleet.missing = None
    assert checks(of(fleet))[1]["search attributes"]["health"] == "doubt"


@pytest.mark.parametrize(("polls", "health"), [({}, "wrong"), ({"w": 300.0}, "wrong"), ({"w": 3.0}, "doubt")], ids=str)
def test_no_worker_is_wrong_and_a_single_one_a_doubt(polls: dict[str, float], health: str) -> None:
    fleet = WatchedFleet(serving("m"))
    fleet.polls = polls
    code, found = checks(of(fleet))
    assert found["workers"]["health"] == health
    assert code == (REFUSED if health == "wrong" else 0)


def test_a_worker_that_asks_for_work_no_more_is_a_doubt_beside_one_that_does() -> None:
    fleet = WatchedFleet(serving("m"))
    fleet.polls = {"1@a": 3.0, "2@b": 200.0}
    found = checks(of(fleet))[1]["workers"]
    assert (found["health"], found["what"]) == (
        "doubt",
        "1@a (3s ago) asked for work within the last minute; no longer: 2@b (last 3m ago)",
    )


def test_a_worker_that_just_died_is_not_called_fine() -> None:
    """Temporal remembers it for a minute: the workflow's silence says that it is gone."""

    class Silent(Raising, WatchedFleet):
        pass

    fleet = Silent(TimeoutError(), polls={})
    fleet.polls = {"1@a": 12.0, "2@b": 20.0}
    found = checks(Command(fleet))[1]["workers"]
    assert found["health"] == "wrong"
    assert found["what"] == "1@a (12s ago), 2@b (20s ago) asked for work within the last minute, and none answers"


def test_a_fleet_whose_workflow_does_not_answer_is_wrong_and_asked_no_further() -> None:
    class Silent(Raising, WatchedFleet):
        pass

    fleet = Silent(TimeoutError(), polls={})
    fleet.polls = WORKERS
    code, found = checks(Command(fleet))
    assert code == REFUSED
    assert list(found)[-1] == "workflow"
    assert found["workflow"]["health"] == "wrong"


def test_a_fleet_without_a_catalog_answers_and_is_a_doubt() -> None:
    _, found = checks(of(WatchedFleet(World(fleet="main", installation="i", epoch=1, seq=0))))
    assert found["workflow"]["health"] == "doubt"
    assert found["workflow"]["mend"]


def test_every_phase_that_doctor_knows_is_one() -> None:
    phases = {str(phase).replace("_", " ") for phase in Phase}
    assert {*SICK_PHASES, *IDLE_PHASES} <= phases


def test_an_agent_that_does_not_know_the_token_says_so_and_without_one_it_is_a_doubt(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    code, found = checks(of(WatchedFleet(serving("m")), answer(401)))
    assert (code, found["node node-a"]["health"]) == (0, "doubt")
    code, found = checks(of(WatchedFleet(serving("m")), answer(401)), "--token-file", str(token))
    assert (code, found["node node-a"]["health"]) == (REFUSED, "wrong")
    assert "its own token file" in found["node node-a"]["mend"]


def test_the_token_is_shown_to_agents_and_never_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hush-hush\n")
    seen: list[str | None] = []

    def agent(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return answer()

    done = Command(WatchedFleet(serving("m")), agent=agent, wall_s=NOW_S)("doctor", "fleet", "--token-file", str(token))
    assert set(seen) == {"Bearer hush-hush"}
    assert "hush-hush" not in done.output


@pytest.mark.parametrize(("skew_s", "words"), [(90, "90 s ahead of"), (-40, "40 s behind")])
def test_a_clock_that_is_off_is_a_doubt(skew_s: float, words: str) -> None:
    _, found = checks(of(WatchedFleet(serving("m")), answer(date_s=NOW_S + skew_s)))
    assert found["node node-a"]["health"] == "doubt"
    assert words in found["node node-a"]["what"]


def test_an_answer_without_a_date_is_no_reason_for_doubt() -> None:
    _, found = checks(of(WatchedFleet(serving("m")), httpx.Response(200, text="{}\n")))
    assert found["router edge-1"]["health"] == "fine"


def test_an_agent_that_is_not_reached_is_wrong_while_the_others_are_told() -> None:
    def agent(request: httpx.Request) -> httpx.Response:
        if request.url.host == "a":
            raise httpx.ConnectError("refused")
        return answer()

    code, found = checks(Command(WatchedFleet(serving("m")), agent=agent, wall_s=NOW_S))
    assert code == REFUSED
    assert found["node node-a"]["what"] == "not reached at http://a:7070: nothing listens there"
    assert found["node node-b"]["health"] == "fine"


def test_a_fleet_with_nothing_declared_is_a_doubt() -> None:
    _, found = checks(of(WatchedFleet(World(fleet="main", installation="i", epoch=1, seq=0))))
    assert found["agents and routers"]["health"] == "doubt"


def test_the_page_has_a_line_for_each_check_and_one_for_each_mend() -> None:
    fleet = WatchedFleet(serving("m"))
    fleet.missing = ("FleetPhase",)
    lines = of(fleet)("doctor", "fleet").stdout.splitlines()
    assert lines[0] == "fine  Temporal: reached, namespace default"
    assert lines[1].startswith("doubt search attributes: FleetPhase not registered")
    assert lines[2].startswith("      → temporal operator search-attribute create")


# --- the machine ---------------------------------------------------------------------------------------------------


def machine(**environment: str) -> dict[str, Checked]:
    return {c.subject: c for c in machine_checks.machine_checks(environment)}


@contextmanager
def taken_ports(count: int) -> Iterator[str]:
    """A range of `count` ports in a row, all taken."""
    for first in range(26000, 60000, 100):
        held: list[socket.socket] = []
        try:
            for port in range(first, first + count):
                held.append(socket.create_server(("127.0.0.1", port)))  # noqa: PERF401 - what is held is let go
            yield f"{first}-{first + count - 1}"
            return
        except OSError:
            continue
        finally:
            for listener in held:
                listener.close()
    pytest.fail("no free ports in a row")


def test_a_range_of_ports_that_are_all_taken_is_wrong() -> None:
    with taken_ports(3) as text:
        found = machine(LLMGW_AGENT_PORT_RANGE=text)["ports for engines"]
    assert (found.health, found.what) == (Health.WRONG, f"none of {text} is free")


@pytest.mark.parametrize("text", ["9-1", "x", "0-5", "1-70000", "80"])
def test_a_range_that_is_none_is_wrong_with_an_example(text: str) -> None:
    found = machine(LLMGW_AGENT_PORT_RANGE=text)["ports for engines"]
    assert found.health is Health.WRONG
    assert "21000-21999" in found.mend


def test_a_range_that_the_system_gives_to_connections_is_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "range"
    file.write_text("21500\t60999\n")
    monkeypatch.setattr(machine_checks, "EPHEMERAL", file)
    assert "overlaps 21500-60999" in machine()["ports for engines"].what
    file.write_text("32768 60999\n")
    assert "overlaps" not in machine()["ports for engines"].what


@pytest.mark.parametrize(
    ("free_gb", "used_share", "health"), [(500, 0.5, Health.FINE), (9, 0.5, Health.DOUBT), (40, 0.96, Health.WRONG)]
)
def test_a_disk_is_judged_by_what_is_free(
    free_gb: float, used_share: float, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = int(free_gb * 1e9 / (1 - used_share))
    usage = SimpleNamespace(total=total, used=int(total * used_share), free=int(free_gb * 1e9))
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert machine(LLMGW_AGENT_STATE_DIR="/var/lib/llmgw")["disk of /var/lib/llmgw"].health is health


def test_a_token_file_is_read_and_its_rights_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    assert machine(LLMGW_TOKEN_FILE=str(file))["token file"].health is Health.WRONG
    file.write_text("# none\n")
    assert machine(LLMGW_TOKEN_FILE=str(file))["token file"].health is Health.WRONG
    file.write_text("one\ntwo\n")
    file.chmod(0o644)
    assert machine(LLMGW_TOKEN_FILE=str(file))["token file"].health is Health.DOUBT
    file.chmod(0o600)
    assert machine(LLMGW_TOKEN_FILE=str(file))["token file"] == Checked("token file", Health.FINE, "2 tokens")


def test_an_engine_beside_this_python_is_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (tmp_path / "llama-server-vulkan").write_text("")
    found = machine(PATH=str(tmp_path / "nowhere"))["engines"]
    assert (found.health, found.what.split(" beside")[0]) == (Health.FINE, "llama-server-vulkan")


def test_engines_on_the_path_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "elsewhere" / "python"))
    assert machine(PATH=str(tmp_path))["engines"].health is Health.DOUBT
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert machine(PATH=str(tmp_path))["engines"].what == "llama-server found on PATH"


@pytest.mark.parametrize(("hard", "health"), [(1024, Health.DOUBT), (65_536, Health.FINE), (-1, Health.FINE)])
def test_too_few_file_handles_are_a_doubt(hard: int, health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, hard))
    assert machine()["file handles"].health is health
