"""Memory of an engine that has ended: its device is nobody else's until that has come back."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from agent.devices import Known
from agent.devices import Meter as Figures
from agent.freeing import why_not_free
from llmgw.ids import DeviceId
from llmgw.wire import (
    Device,
    DeviceClaim,
    DeviceHealth,
    DeviceNaming,
    DeviceSelection,
    Inventory,
    LaunchSpec,
    Outcome,
    RefusalCode,
)
from tests.agent.metered import CARDS, TOTAL_MIB, Meter
from tests.agent.running import Agent, agent_in, start, stop, stub

ONE, TWO = CARDS


@pytest.fixture
def meter(tmp_path: Path) -> Meter:
    return Meter(tmp_path)


@pytest.fixture
async def agent(tmp_path: Path, meter: Meter) -> AsyncIterator[Agent]:
    async with agent_in(tmp_path, devices="auto", env=meter.env) as made:
        yield made


def holding(meter: Meter, *args: str, naming: DeviceNaming = DeviceNaming.UUID) -> LaunchSpec:
    """A stub that is shown its devices and holds memory on them. KILL is waited for 0.3 s."""
    launch = stub("--hold-mib", "5000", "--meter", str(meter.file), *args)
    selection = DeviceSelection(
        naming=naming, variables=("CUDA_VISIBLE_DEVICES",), extra_env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    )
    return launch.model_copy(
        update={"devices": selection, "stop": launch.stop.model_copy(update={"kill_limit_s": 0.3})}
    )


async def test_an_engine_is_shown_its_devices_and_is_never_foreign_on_them(agent: Agent, meter: Meter) -> None:
    before = await agent.report()
    assert [(d.id, d.memory_mib, d.baseline_mib) for d in before.inventory.devices] == [
        (ONE, TOTAL_MIB, 768),
        (TWO, TOTAL_MIB, 768),
    ]
    await agent.send(1, start("m-1", holding(meter), TWO, ONE))
    row = await agent.row("m-1", "ready")
    shown = psutil.Process(row.pid).environ()
    assert shown["CUDA_VISIBLE_DEVICES"] == f"{TWO},{ONE}"
    assert shown["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    await agent.kill()
    await agent.begin()
    await agent.row("m-1", "ready")
    assert (await agent.report()).inventory == before.inventory, "neither foreign nor baseline, by a new agent too"


async def test_an_engine_that_takes_numbers_is_shown_the_number_of_its_device(agent: Agent, meter: Meter) -> None:
    await agent.send(1, start("m-1", holding(meter, naming=DeviceNaming.INDEX), TWO))
    row = await agent.row("m-1", "ready")
    assert psutil.Process(row.pid).environ()["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("ends", ["stopped", "crashed"])
async def test_memory_that_does_not_come_back_quarantines_the_device_with_pid_and_reason(
    agent: Agent, meter: Meter, ends: str
) -> None:
    await agent.send(1, start("m-1", holding(meter, "--keep-memory"), ONE))
    row = await agent.row("m-1", "ready")
    if ends == "crashed":
        await agent.tell("m-1", "crash")
        await agent.row("m-1", "failed")
    else:
        await agent.send(2, stop("m-1"))
    report = await agent.report(lambda r: ONE in r.quarantined)
    assert f"{ONE}: 5000 MiB have not come back; held by pid {row.pid} (x)" in report.quarantined[DeviceId(ONE)]
    assert TWO not in report.quarantined, "the rest of the node stays in use"
    assert {d.id: d.health for d in report.inventory.devices}[DeviceId(ONE)] is DeviceHealth.QUARANTINED
    assert agent.ours() == []
    refused = (await agent.send(3, start("m-2", holding(meter), ONE))).results[0].refusal
    assert refused is not None
    assert refused.code is RefusalCode.DEVICE_QUARANTINED
    assert f"pid {row.pid}" in refused.message
    if ends == "crashed":
        again = (await agent.send(4, start("m-1", holding(meter), ONE, attempt=2))).results[0].refusal
        assert again is not None
        assert again.code is RefusalCode.DEVICE_QUARANTINED
        await agent.send(5, stop("m-1"))
    await agent.kill()  # the quarantine outlives the agent
    await agent.begin()
    await agent.report(lambda r: ONE in r.quarantined)
    meter.let_go(ONE)
    report = await agent.without("m-1")
    assert report.quarantined == {}
    assert (await agent.send(6, start("m-2", holding(meter), ONE))).results[0].outcome is Outcome.ACCEPTED
    await agent.row("m-2", "ready")


@pytest.mark.parametrize("ends", ["stopped", "crashed"])
async def test_a_quarantine_for_memory_alone_can_be_lifted(agent: Agent, meter: Meter, ends: str) -> None:
    assert (await agent.http.post("/v1/restore", json={"device": ONE})).status_code == 409
    await agent.send(1, start("m-1", holding(meter, "--keep-memory"), ONE))
    await agent.row("m-1", "ready")
    if ends == "crashed":
        await agent.tell("m-1", "crash")
        await agent.row("m-1", "failed")
    else:
        await agent.send(2, stop("m-1"))
    await agent.report(lambda r: ONE in r.quarantined)
    assert (await agent.http.post("/v1/restore", json={"device": TWO})).status_code == 409
    assert (await agent.http.post("/v1/restore", json={"device": ONE})).status_code == 204
    await agent.report(lambda r: not r.quarantined)
    if ends == "crashed":
        await agent.send(3, stop("m-1"))
    await agent.without("m-1")
    assert (await agent.send(4, start("m-2", holding(meter), ONE))).results[0].outcome is Outcome.ACCEPTED


async def test_memory_that_somebody_else_took_meanwhile_is_not_waited_for(agent: Agent, meter: Meter) -> None:
    await agent.send(1, start("m-1", holding(meter), ONE))
    await agent.row("m-1", "ready")
    meter.enter(ONE, 9000, os.getpid())
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    report = await agent.report(lambda r: r.inventory.devices[0].foreign_mib > 0)
    assert report.inventory.devices[0].foreign_processes == (f"pid {os.getpid()} (x)",)


# --- pure ----------------------------------------------------------------------------------------------------------


def known(figures: Figures | None) -> Known:
    device = Device(id=DeviceId("g"), index=0, kind="h100", memory_mib=80000)
    return Known(Inventory(devices=(device,)), meters={} if figures is None else {DeviceId("g"): figures})


@pytest.mark.parametrize(
    ("figures", "idle", "free"),
    [
        (Figures(600), 600, True),
        (Figures(1100), 600, True),
        (Figures(1200), 600, False),
        (Figures(9600, foreign_mib=9000), 600, True),
        (Figures(6400), None, True),
        (Figures(8000), None, False),
        (Figures(None), 600, True),
        (None, 600, True),
    ],
    ids=[
        "as before",
        "a little more",
        "held",
        "another's",
        "unknown before, a baseline",
        "unknown before, held",
        "untold",
        "no tool",
    ],
)
def test_a_device_is_free_when_its_memory_is_as_before_the_engine(
    figures: Figures | None, idle: int | None, free: bool
) -> None:
    before = {} if idle is None else {DeviceId("g"): idle}
    assert (why_not_free((DeviceClaim(device=DeviceId("g")),), before, known(figures)) == "") is free


def test_a_part_of_a_device_is_proven_by_its_processes_alone() -> None:
    assert why_not_free((DeviceClaim(device=DeviceId("g"), memory_mib=1000),), {}, known(Figures(50000))) == ""


@pytest.mark.parametrize(
    ("unseen", "pids", "reason"),
    [
        ({71: 900}, {71}, "g: 900 MiB have not come back; held by pid 71, which this system no longer knows"),
        ({71: None}, {71}, "g: memory has not come back; held by pid 71, which this system no longer knows"),
        ({71: 900, 72: 50}, {71, 72, 73}, "g: 950 MiB have not come back; held by pid 71, 72, which"),
        ({71: 900}, {99}, ""),
        ({}, {71}, ""),
    ],
    ids=["held", "of unknown size", "by children too", "another's", "come back"],
)
def test_a_part_of_a_device_is_not_free_while_the_tool_lists_its_dead_on_it(
    unseen: dict[int, int | None], pids: set[int], reason: str
) -> None:
    figures = Figures(used_mib=50000, unseen_mib=unseen)
    now = Known(meters={DeviceId("g"): figures})
    said = why_not_free((DeviceClaim(device=DeviceId("g"), memory_mib=1000),), {}, now, frozenset(pids))
    assert said.startswith(reason)
    assert bool(said) is bool(reason)


async def test_the_dead_of_a_shared_device_quarantine_it_until_the_driver_lets_go(agent: Agent, meter: Meter) -> None:
    part = DeviceClaim(device=DeviceId(ONE), memory_mib=8000)
    wanted = start("m-1", holding(meter, "--keep-memory"))
    await agent.send(1, wanted.model_copy(update={"claims": (part,)}))
    row = await agent.row("m-1", "ready")
    await agent.send(2, stop("m-1"))
    report = await agent.report(lambda r: ONE in r.quarantined)
    assert f"held by pid {row.pid}, which this system no longer knows" in report.quarantined[DeviceId(ONE)]
    meter.let_go(ONE)
    assert (await agent.without("m-1")).quarantined == {}
