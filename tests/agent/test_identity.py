"""Which machine this is, and whose: told by hardware and by what is kept on disk, never by a name or an address."""

import shutil
from pathlib import Path

import pytest

from agent.ledger import Ledger
from agent.proc import Census
from agent.recovery import recover
from llmgw.ids import ReplicaId
from llmgw.wire import Owner, Release
from tests.agent.metered import CARDS, Meter
from tests.agent.running import JSON, NODE, Agent, agent_in, start, stop, stub, token
from tests.agent.test_comeback import HOME, process, record


async def test_a_new_address_changes_urls_and_nothing_else(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    before = await agent.report(lambda r: r.replicas[0].state == "ready")
    await agent.kill()
    await agent.begin("--url", "http://10.9.8.7:7811", "--engine-host", "0.0.0.0")
    after = await agent.report(lambda r: r.replicas[0].state == "ready")
    assert after.replicas[0].url == f"http://10.9.8.7:{before.replicas[0].port}"
    for what in ("node", "machine_id", "boot_id", "owner", "inventory"):
        assert getattr(after, what) == getattr(before, what), what
    assert after.replicas[0].pid == before.replicas[0].pid
    assert after.instance != before.instance, "another run of the agent, so its revisions begin anew"


async def test_a_cloned_state_folder_on_another_machine_keeps_the_owner_and_claims_no_replica(agent: Agent) -> None:
    await agent.send(7, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    clone = Agent(agent.state_dir.parent / "clone", agent.port + 50)
    shutil.copytree(agent.state_dir, clone.state_dir)
    try:
        await clone.begin("--machine-id", "another", "--port-range", f"{clone.port + 1}-{clone.port + 40}")
        report = await clone.report()
        assert (report.machine_id, report.replicas) == ("another", ())
        assert report.owner == Owner(installation="here", fleet="f")
        assert {device.id for device in report.inventory.devices} & {
            device.id for device in (await agent.report()).inventory.devices
        } == set(), "declared devices are another machine's too"
        await clone.send(8, stop("m-1"))
        assert (await agent.row("m-1", "ready")).pid == row.pid, "it is not there, so it is not touched"
    finally:
        await clone.clean()


async def test_a_machine_set_up_anew_is_known_again_by_its_devices(tmp_path: Path) -> None:
    meter = Meter(tmp_path)
    for life, machine in (("first", "machine-1"), ("second", "machine-2")):
        folder = tmp_path / life
        folder.mkdir()
        async with agent_in(folder, "--machine-id", machine, devices="auto", env=meter.env) as agent:
            report = await agent.report()
            assert report.machine_id == machine
            assert tuple(device.id for device in report.inventory.devices) == CARDS
            assert report.owner is None, "nobody's, until it is commanded"


async def test_the_owner_outlives_the_agent_until_it_is_released(agent: Agent) -> None:
    await agent.send(3)
    await agent.kill()
    await agent.begin()
    refused = await agent.post(4, token=token(4, installation="theirs"))
    assert refused.status_code == 403
    assert "installation 'here', fleet 'f'" in refused.json()["message"]
    body = Release(owner=Owner(installation="here", fleet="f")).model_dump_json()
    assert (await agent.http.post("/v1/release", content=body, headers=JSON)).status_code == 204
    assert (await agent.post(1, token=token(1, installation="theirs"))).status_code == 200
    assert (await agent.report()).owner == Owner(installation="theirs", fleet="f")


@pytest.mark.parametrize(
    ("written_on", "here", "found"),
    [("a", "a", ["m-1"]), ("a", "b", []), ("", "b", ["m-1"]), ("a", "", ["m-1"])],
    ids=["this machine", "another", "a ledger that does not tell", "a machine that does not tell"],
)
def test_a_ledger_of_another_machine_tells_of_no_replica_here(written_on: str, here: str, found: list[str]) -> None:
    old = Ledger(boot_id="b", machine_id=written_on, token=token(5), records={ReplicaId("m-1"): record(pid=2**22 + 5)})
    recovered = recover(old, Census(), "b", NODE, HOME, machine_id=here)
    assert list(recovered.ledger.records) == found
    assert recovered.ledger.token == token(5)


def test_what_runs_here_is_known_by_its_marks_whatever_machine_the_ledger_names() -> None:
    old = Ledger(boot_id="b", machine_id="a", token=token(5))
    running = Census((process(50, record(started_s=10.0)),))
    recovered = recover(old, running, "b", NODE, HOME, machine_id="z")
    assert list(recovered.ledger.records) == ["m-1"]
    assert recovered.rebuilt, "so it is told before anything is obeyed"
