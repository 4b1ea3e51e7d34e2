"""A step that fails says what it saw and where the logs are; what is begun is ended, and the answer comes anyway."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from workers.devstack.check import Outcome, run_step
from workers.devstack.layout import Layout, choose_ports, free_row
from workers.devstack.parts import Programs
from workers.devstack.stack import Stack
from workers.devstack.steps import END, STEPS, Scene, Step, StepFailedError, prove, until


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    layout = Layout(tmp_path, choose_ports(None, free_row()))
    async with aiohttp.ClientSession() as http:
        yield Scene(Stack(layout, Programs("python", "temporal", None), http, lambda _: None))


async def outcome(scene: Scene, error: Exception | None, limit_s: float = 5.0) -> Outcome:
    async def act(_: Scene) -> str:
        if error is not None:
            raise error
        await asyncio.Event().wait()
        return "never"

    return await run_step(Step("a step", act, limit_s), scene)


async def test_a_failed_step_names_what_it_saw_and_the_logs(scene: Scene) -> None:
    told = await outcome(scene, StepFailedError("saw 503 'no ready replica'"))
    assert (told.name, told.ok) == ("a step", False)
    assert told.detail == f"saw 503 'no ready replica' (logs: {scene.stack.layout.logs})"


async def test_a_step_that_never_ends_fails_at_its_limit(scene: Scene) -> None:
    told = await outcome(scene, None, 0.01)
    assert (told.ok, told.detail.startswith("not done after 0.01 s")) == (False, True)


async def test_an_unforeseen_error_is_a_failed_step_not_a_missing_answer(scene: Scene) -> None:
    told = await outcome(scene, KeyError("models"))
    assert (told.ok, told.detail.startswith("KeyError: 'models'")) == (False, True)


async def test_waiting_ends_with_the_last_thing_seen() -> None:
    async def look() -> str:
        return "0 of 2 ready"

    with pytest.raises(StepFailedError, match=r"after 0 s still: 0 of 2 ready"):
        await until(look, 0)


def test_what_does_not_hold_is_told_as_seen() -> None:
    prove(True, "nothing")
    with pytest.raises(StepFailedError, match="saw 404"):
        prove(False, 404)


async def test_teardown_of_a_stack_that_never_came_up_leaves_nothing(scene: Scene) -> None:
    told = await run_step(END, scene)
    assert (told.ok, told.detail) == (True, "of 0 engines and 6 ports nothing is left")


def test_every_step_has_a_name_of_its_own() -> None:
    names = [step.name for step in (*STEPS, END)]
    assert len(set(names)) == len(names)
