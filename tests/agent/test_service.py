"""The agent as the plane meets it: held streams, launches as executed, ports, secrets, logs, metrics."""

import asyncio
import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from agent.settings import SettingsError, read_settings
from llmgw.ids import ReplicaId
from llmgw.wire import BEAT_S, LaunchSpec, NodeReport, Outcome, RefusalCode, RemoveWeights
from tests.agent.running import Agent, agent_in, start, stop, stub

SAYS_ITS_LAUNCH = "import sys, os, json; print(json.dumps([sys.argv[1:], dict(os.environ)])); sys.exit(3)"


def saying(*args: str, **fields: object) -> LaunchSpec:
    """A launch that prints its arguments and environment as JSON, then fails."""
    argv = ("${llmgw:python}", "-c", SAYS_ITS_LAUNCH, *args)
    return LaunchSpec(engine="command", argv=argv, served_name="m").model_copy(update=fields)


async def test_a_held_stream_tells_each_change_at_once_and_beats_while_there_is_none(agent: Agent) -> None:
    known = await agent.report()
    held = {"instance": known.instance, "revision": str(known.revision)}
    async with agent.http.stream("GET", "/v1/state", params=held, timeout=None) as stream:
        lines = stream.aiter_lines()
        since = time.monotonic()
        assert await anext(lines) == "", "who holds the report gets a beat, not the report"
        assert time.monotonic() - since == pytest.approx(BEAT_S, abs=0.7)
        await agent.send(1, start("m-1", stub("--load-s", "0.3")))
        states = []
        while "ready" not in states:
            if line := await anext(lines):
                report = NodeReport.model_validate_json(line)
                states += [row.state for row in report.replicas]
                assert (report.instance, report.revision > known.revision) == (known.instance, True)
    assert states[0] == "starting"
    assert "loading" in states
    await agent.kill()
    await agent.begin()
    assert (await agent.report()).instance != known.instance


async def test_arguments_environment_ports_and_secrets_reach_the_process_and_nothing_else_learns_the_secret(
    agent: Agent,
) -> None:
    odd = ("", "a b", "${llmgw:port:rpc}", "--x", "--x", "$(id)", "${llmgw:port}", "\u00fc\n", "")
    launch = saying(*odd, extra_ports=("rpc",), secret_env={"KEY": "pass-phrase"}, env={"P": "p${llmgw:port}"})
    await agent.send(1, start("m-1", launch))
    row = await agent.row("m-1", "failed")
    assert (row.exit_code, row.was_ready) == (3, False)
    argv, env = json.loads((agent.state_dir / "logs" / "m-1" / "1.log").read_text())
    rpc = argv[2]
    assert argv == ["", "a b", rpc, "--x", "--x", "$(id)", str(row.port), "\u00fc\n", ""]
    assert rpc != str(row.port)
    assert (env["KEY"], env["P"], env["LLMGW_REPLICA"]) == ("open-sesame", f"p{row.port}", "m-1")
    assert "LLMGW_SECRET_PASS_PHRASE" not in env
    told = json.loads((await agent.http.get("/v1/replicas/m-1/logs")).text)
    assert (told[0], told[1]["KEY"]) == (argv, "***")
    assert "open-sesame" not in row.model_dump_json()
    assert "open-sesame" not in (agent.state_dir / "ledger.json").read_text()


async def test_a_port_rests_until_the_plane_names_it_and_a_full_range_refuses(tmp_path: Path) -> None:
    async with agent_in(tmp_path, "--port-range", "9990-9991") as agent:
        await agent.send(1, start("m-1", stub()), start("m-2", stub()), start("m-3", stub()))
        one = await agent.row("m-1", "ready")
        await agent.row("m-2", "ready")
        await agent.send(2, stop("m-1"))
        await agent.without("m-1")
        refused = (await agent.send(3, start("m-4", stub()))).results[0].refusal
        assert refused is not None
        assert refused.code is RefusalCode.NO_PORT
        assert "1 resting" in refused.message
        await agent.kill()
        await agent.begin("--port-range", "9990-9991")
        assert (await agent.send(4, start("m-4", stub()))).results[0].outcome is Outcome.REFUSED
        answer = await agent.post(5, start("m-4", stub()), released_ports=(one.port,))
        assert answer.json()["results"][0]["outcome"] == "accepted"
        assert (await agent.row("m-4", "ready")).port == one.port


async def test_a_log_is_followed_until_its_replica_has_ended(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    await agent.row("m-1", "ready")

    async def read() -> str:
        asked = {"follow": "1", "lines": "1"}
        async with agent.http.stream("GET", "/v1/replicas/m-1/logs", params=asked, timeout=20) as answer:
            return (await answer.aread()).decode()

    reading = asyncio.create_task(read())
    await agent.tell("m-1", "crash")
    assert (await reading).endswith("crashing as told\n")


async def test_weights_in_use_are_kept_and_unused_ones_removed(tmp_path: Path) -> None:
    root = tmp_path / "weights"
    for folder in ("used", "unused"):
        (root / folder).mkdir(parents=True)
        (root / folder / "model.gguf").write_bytes(b"1234")
    async with agent_in(tmp_path, "--weights-root", str(root)) as agent:
        await agent.send(1, start("m-1", stub().model_copy(update={"weights": f"file://{root}/used/model.gguf"})))
        reply = await agent.send(2, RemoveWeights(paths=("used", "unused", "../etc")))
        told = [(path.outcome, path.freed_bytes) for path in reply.results[0].paths]
        assert told == [("refused", 0), ("removed", 4), ("refused", 0)]
        assert (root / "used" / "model.gguf").exists()
        assert not (root / "unused").exists()


async def test_metrics_health_and_description_are_served(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()), stop("nobody"))
    await agent.row("m-1", "ready")
    figures = (await agent.http.get("/metrics")).text
    for line in (
        'llmgw_agent_replicas{state="ready"} 1.0',
        'llmgw_agent_commands_total{kind="start",outcome="accepted"} 1.0',
        'llmgw_agent_commands_total{kind="stop",outcome="already"} 1.0',
        'llmgw_agent_devices{health="ok"} 4.0',
        "llmgw_agent_ready_seconds_count 1.0",
        "llmgw_agent_bugs_total 0.0",
    ):
        assert line in figures
    paths = (await agent.http.get("/openapi.json")).json()["paths"]
    assert {"/v1/state", "/v1/commands", "/v1/release", "/v1/replicas/{replica}/logs"} <= set(paths)
    assert "409" in paths["/v1/commands"]["post"]["responses"]


async def test_an_agent_given_to_another_fleet_shows_and_never_touches_the_former_ones_engines(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    await agent.http.post("/v1/release", json={"owner": {"installation": "here", "fleet": "f"}})
    taken = {**asdict(row.mark), "fleet": "g", "seq": 2}
    del taken["replica"]
    batch = {"token": taken, "node": "n1", "commands": [stop("m-1").model_dump()]}
    answer = await agent.http.post("/v1/commands", json=batch)
    assert answer.json()["results"][0]["refusal"]["code"] == "not_ours"
    assert (await agent.row("m-1", "ready")).pid == row.pid


async def test_many_starts_are_accepted_at_once_and_each_engine_becomes_ready(agent: Agent) -> None:
    replicas = [ReplicaId(f"m-{number}") for number in range(12)]
    reply = await agent.send(1, *(start(replica, stub()) for replica in replicas))
    assert {result.outcome for result in reply.results} == {Outcome.ACCEPTED}
    report = await agent.report(lambda r: len(r.replicas) == 12 and all(row.state == "ready" for row in r.replicas))
    assert len({row.port for row in report.replicas}) == 12
    await agent.send(2, *(stop(replica) for replica in replicas))
    await agent.report(lambda r: r.replicas == ())
    assert agent.ours() == []


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        (["--listen", "0.0.0.0:7811"], {}, ["--token-file: missing", "loopback"]),
        (["--port-range", "7000-8000"], {}, ["--port-range", "own port 7811"]),
        (["--token-file", "/nowhere"], {}, ["--token-file: cannot read /nowhere"]),
        ([], {"LLMGW_AGENT_LISTEN": "x"}, ["LLMGW_AGENT_LISTEN: 'x'"]),
        (["--url", "gpu-07"], {}, ["--url: 'gpu-07'"]),
        (["--weights-root", "/nowhere"], {}, ["--weights-root: /nowhere is not a folder"]),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_mend(
    tmp_path: Path, flags: list[str], environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(["--node-id", "n1", "--state-dir", str(tmp_path), *flags], environ)
    for word in words:
        assert word in str(caught.value)


def test_flags_win_over_the_environment(tmp_path: Path) -> None:
    environ = {
        "LLMGW_NODE_ID": "from-env",
        "LLMGW_AGENT_STATE_DIR": str(tmp_path),
        "LLMGW_AGENT_PORT_RANGE": "2000-2009",
    }
    made = read_settings(["--node-id", "n1"], environ)
    assert (made.node, made.first_port, made.last_port, made.url) == ("n1", 2000, 2009, "http://127.0.0.1:7811")


async def test_an_address_that_is_taken_is_told_and_nothing_is_touched(agent: Agent) -> None:
    second = Agent(agent.state_dir.parent / "other", agent.port)
    await second.begin()  # the first one answers its /healthz
    assert second.process is not None
    assert await second.process.wait() == 1
    said = (agent.state_dir.parent / "agent.log").read_text()
    assert f"--listen 127.0.0.1:{agent.port}: Address already in use" in said
    await second.http.aclose()
