"""Every step of a start and of a stop, and the agent killed there: nothing is lost or doubled, whatever was done.

The table is generated from the functions that make the steps. Each row: an agent that dies at that step, then one
that does not, and the plane's batch again where the first did not acknowledge it.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from llmgw.wire import Command, DeviceNaming, DeviceSelection, LaunchSpec
from tests.agent.metered import CARDS, Meter
from tests.agent.running import Agent, agent_in, start, stop, stub


class Step(NamedTuple):
    """The call of a function at which the agent dies."""

    function: str
    which: int | str
    """The number of the call, or what a ledger that is written shows (`tests.agent.dying.MOMENTS`)."""
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.function.partition(':')[2]} {self.which}"


WRITE = "agent.ledger:write_ledger"


def steps(*calls: tuple[str, int | tuple[str, ...]]) -> tuple[Step, ...]:
    """Before the first call, and after each: before the next is the same moment."""
    first, _ = calls[0]
    after = (
        Step(function, which, "after")
        for function, those in calls
        for which in (range(1, those + 1) if isinstance(those, int) else those)
    )
    return (Step(first, 1, "before"), *after)


STARTING = steps(
    ("agent.commands:Commands._stage", 1),
    ("os:fsync", 2),  # the ledger's draft, and its folder
    (WRITE, ("accepted", "executed", "ready")),
    ("agent.ports:Ports.hand_over", 1),
    ("os:posix_spawn", 1),
    ("agent.engines:start", 1),
    ("agent.readiness:Prober.look", 1),
    ("agent.watching:Watch._became_ready", 1),
)
STOPPING = steps(
    ("agent.commands:Commands._stage", 1),
    ("os:fsync", 1),
    (WRITE, ("wanted", "gone")),
    ("agent.engines:Engine.send", 1),
    ("agent.ending:why_not_free", 1),
    ("agent.node:Node.forget", 1),
)
FORCING = steps(  # of an engine that ignores TERM and leaves a child
    ("agent.ending:Ending._on_step", 3),  # TERM, TERM, KILL
    (WRITE, ("wanted", "asked twice", "forced", "gone")),
    ("agent.engines:Engine.send", 3),
    ("agent.census:take_census", 1),
)


@pytest.fixture
def meter(tmp_path: Path) -> Meter:
    return Meter(tmp_path)


@pytest.fixture
async def agent(tmp_path: Path, meter: Meter) -> AsyncIterator[Agent]:
    """One that may be told where to die; its devices have a meter, so that freeing them is a step too."""
    async with agent_in(tmp_path, devices="auto", env=meter.env, begins=False) as made:
        yield made


def launch(meter: Meter, *args: str) -> LaunchSpec:
    base = stub("--hold-mib", "5000", "--meter", str(meter.file), *args, term_limit_s=0.2)
    selection = DeviceSelection(naming=DeviceNaming.UUID, variables=("CUDA_VISIBLE_DEVICES",))
    return base.model_copy(
        update={"devices": selection, "stop": base.stop.model_copy(update={"second_term_limit_s": 0.1})}
    )


async def dies(agent: Agent, step: Step, seq: int, command: Command) -> bool:
    """Command an agent that dies at `step`; True when it acknowledged before."""
    flag = agent.state_dir.parent / "armed"
    acknowledged = False
    flag.touch()
    with contextlib.suppress(httpx.TransportError):
        acknowledged = (await agent.post(seq, command)).status_code == 200
    assert await agent.end() == -9, f"it never came to the step {step}"
    return acknowledged


@pytest.mark.parametrize("step", STARTING, ids=str)
async def test_a_start_is_made_once_whenever_the_agent_is_killed(agent: Agent, meter: Meter, step: Step) -> None:
    wanted = start("m-1", launch(meter), CARDS[0])
    await agent.begin(dies_at=step)
    acknowledged = await dies(agent, step, 1, wanted)
    await agent.begin()
    if not acknowledged:
        await agent.send(2, wanted)
    row = await agent.row("m-1", "ready")
    (leader,) = agent.ours()
    assert leader.pid == row.pid
    assert row.attempt == 1
    assert list(agent.ledger()["records"]) == ["m-1"]


@pytest.mark.parametrize(
    ("step", "manners"),
    [*((step, ()) for step in STOPPING), *((step, ("--ignore-term", "--leave-child")) for step in FORCING)],
    ids=str,
)
async def test_a_stop_goes_on_to_its_proof_whenever_the_agent_is_killed(
    agent: Agent, meter: Meter, step: Step, manners: tuple[str, ...]
) -> None:
    await agent.begin(dies_at=step)
    await agent.send(1, start("m-1", launch(meter, *manners), CARDS[0]))
    await agent.row("m-1", "ready")
    await agent.written(lambda records: records["m-1"].get("was_ready", False))
    acknowledged = await dies(agent, step, 2, stop("m-1"))
    await agent.begin()
    if not acknowledged:
        await agent.send(3, stop("m-1"))
    report = await agent.without("m-1")
    assert report.quarantined == {}
    assert agent.ours() == []
    await agent.written(lambda records: records == {})
