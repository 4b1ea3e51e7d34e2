"""A whole fleet on this machine, with nothing else running: `python -m workers.devstack.main --help`, or `llmgw dev`.

Comes up, says what can be done with it, and ends everything on Ctrl-C; what it knows stays in its state directory.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from temporalio.exceptions import TemporalError

from workers.devstack import example
from workers.devstack.guide import guide
from workers.devstack.layout import StackError
from workers.devstack.parts import WORKER, find_programs
from workers.devstack.show import Lines, Screen, Show
from workers.devstack.stack import Stack, absolute, prepared

READY_S = 60.0
LOOK_S = 0.3
FOLLOW_S = 1.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="llmgw dev",
        description="Runs a whole fleet on this machine: Temporal, a worker, two agents with four declared devices "
        "each, a router, and an example catalog on a real llama.cpp server.",
        epilog="Ctrl-C ends everything, twice ends it at once. A second run on the same state directory goes on "
        "where the first was, and takes over engines that a kill -9 left running.",
    )
    made.add_argument("--state-dir", type=Path, metavar="DIR", help="where everything is kept; default ./.llmgw")
    made.add_argument("--ports-from", type=int, metavar="N", help="take ports from N upwards, not the usual ones")
    made.add_argument(
        "--check", action="store_true", help="prove it, unattended, in a folder of its own, and exit with 0 or 1"
    )
    return made


async def check(root: Path | None, first_port: int | None) -> int:
    """Prove that it works. Returns the exit code."""
    from workers.devstack.check import run_check  # not needed to run a stack

    stop = asyncio.Event()
    _on_signals(stop, [])
    return await run_check(root, first_port, stop)


async def run(root: Path, first_port: int | None, show: Show) -> int:
    """Run the stack until a signal comes. Returns the exit code."""
    stop = asyncio.Event()
    hurry: list[Callable[[], None]] = []
    _on_signals(stop, hurry)
    try:
        async with prepared(root, find_programs(), first_port, show.part) as stack:
            hurry.append(stack.hurry.set)
            return await _live(stack, show, stop)
    except StackError as error:
        problem = str(error)
    except TemporalError as error:
        problem = f"Temporal or its worker does not answer: {error}"
    show.settle()
    show.say(problem)
    return 1


async def _live(stack: Stack, show: Show, stop: asyncio.Event) -> int:
    life, stopped = asyncio.create_task(_come_up_and_follow(stack, show)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({life, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            await life  # it ends only by what it raises
    finally:
        for task in (life, stopped):
            task.cancel()
        await asyncio.gather(life, stopped, return_exceptions=True)
        show.settle()
        show.say("ending everything; Ctrl-C again ends it at once")
        remains = await stack.end()
    if remains.processes or remains.ports:
        raise StackError(f"still there: {remains}")
    show.say(f"everything has ended; `llmgw dev` goes on from {stack.layout.root}")
    return 0


async def _come_up_and_follow(stack: Stack, show: Show) -> None:
    await stack.start()
    layout, llama = stack.layout, stack.programs.llama
    if llama is None:
        show.say("there is no llama.cpp server for this platform: the stub engine stands in")
    example.write_catalog(layout.next_catalog, example.second_catalog(layout, llama))
    if is_example := await stack.apply_example():
        example.write_catalog(layout.catalog, example.first_catalog(layout, llama))
    if strangers := await stack.unobserved():
        show.say(f"the catalog in force does not have {', '.join(strangers)}: apply one that does")
    await _until_models_ready(stack, show)
    show.settle()
    show.page(guide(layout, stack.programs, stack.supervisor.pid(WORKER), is_example))
    while True:
        await asyncio.sleep(FOLLOW_S)
        with suppress(TemporalError):  # a worker or Temporal is away: it comes again
            show.models(await stack.models())
            show.status(await stack.status())


async def _until_models_ready(stack: Stack, show: Show) -> None:
    """Wait until everything wanted is ready; past the limit say so and go on, since the fleet goes on trying."""
    deadline = asyncio.get_running_loop().time() + READY_S
    while True:
        with suppress(TemporalError):
            rows = await stack.models()
            show.models(rows)
            if all(row.ready >= row.wanted for row in rows):
                return
        if asyncio.get_running_loop().time() > deadline:
            show.say(f"not everything is ready after {READY_S:g} s; `llmgw explain model/NAME` says why")
            return
        await asyncio.sleep(LOOK_S)


def _on_signals(stop: asyncio.Event, hurry: Sequence[Callable[[], None]]) -> None:
    """The first signal ends the stack in order, the next one at once."""

    def heard() -> None:
        if stop.is_set():
            for act in hurry:
                act()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, heard)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.check:
        return asyncio.run(check(options.state_dir, options.ports_from))
    console = Console()
    show: Show = Screen(console) if console.is_terminal else Lines(sys.stdout)
    return asyncio.run(run(absolute(options.state_dir or Path(".llmgw")), options.ports_from, show))


if __name__ == "__main__":
    code = main()
    # The Temporal client may abort while Python takes itself apart (sdk-python#300): leave before that.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
