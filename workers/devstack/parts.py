"""The table of the stack's parts: what each is started with, and what shows that it is ready.

A newcomer adds a row in `stages`. It starts nothing.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.devstack.layout import HOST, NODES, Layout, StackError
from workers.devstack.owned import mark
from workers.devstack.supervisor import Part
from workflows import names

FLEET = "default"
ROUTER = "router"
WORKER = "worker"
TEMPORAL = "temporal"
DEVICES = "4xsim-24g:24GiB"
DEVICE_KIND = "sim-24g"

Answers = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are that the stack runs. `llama` None: there is none for this platform."""

    python: str
    temporal: str
    llama: str | None


def find_programs() -> Programs:
    """The programs that the `dev` extra installs beside this Python. StackError when Temporal is not there."""
    folder = Path(sys.executable).parent
    temporal, llama = folder / "temporal", folder / "llama-server-vulkan"
    if not temporal.exists():
        raise StackError(f"there is no {temporal}: install llmgw with its `dev` extra (`make dev` does)")
    return Programs(sys.executable, str(temporal), str(llama) if llama.exists() else None)


@dataclass(frozen=True, slots=True)
class Questions:
    """How to ask whether a thing is ready; none of them raises."""

    temporal: Answers
    fleet: Answers
    http: Callable[[str], Answers]
    """Whether a URL answers 200."""


def stages(layout: Layout, programs: Programs, ask: Questions) -> tuple[tuple[Part, ...], ...]:
    """Parts in the order of their start; those of one stage start side by side."""
    return (
        (_temporal(layout, programs, ask),),
        (_worker(layout, programs, ask),),
        (*(_agent(layout, programs, ask, node) for node in NODES), _router(layout, programs, ask)),
    )


def _temporal(layout: Layout, programs: Programs, ask: Questions) -> Part:
    attributes = {
        names.PHASE_ATTRIBUTE: "Keyword",
        names.GENERATION_ATTRIBUTE: "Int",
        names.REJECTED_ATTRIBUTE: "Bool",
    }
    argv = (
        *(programs.temporal, "server", "start-dev", "--ip", HOST, "--log-level", "warn"),
        *("--port", str(layout.ports[TEMPORAL]), "--ui-port", str(layout.ports["ui"])),
        *("--db-filename", str(layout.root / "temporal.db")),
        *(item for name, kind in attributes.items() for item in ("--search-attribute", f"{name}={kind}")),
        # An update that the workflow could never answer is refused at the door (the default lets in 20 MB).
        *("--dynamic-config-value", "history.maxInFlightUpdatePayloads=1500000"),
    )
    return Part(TEMPORAL, argv, _environ(layout, TEMPORAL), ask.temporal, term_limit_s=8.0)


def _worker(layout: Layout, programs: Programs, ask: Questions) -> Part:
    argv = (
        *(programs.python, "-m", "workers.main", "--fleet", FLEET, "--state-dir", str(layout.root / WORKER)),
        *("--address", layout.temporal_address, "--namespace", "default"),
        *("--metrics-listen", f"{HOST}:{layout.ports['metrics']}"),
    )
    # Ready when the fleet's workflow answers: then a worker has taken it up.
    return Part(WORKER, argv, _environ(layout, WORKER), ask.fleet, term_limit_s=8.0)


def _agent(layout: Layout, programs: Programs, ask: Questions, node: str) -> Part:
    argv = (
        *(programs.python, "-m", "agent.main", "--node-id", node, "--listen", f"{HOST}:{layout.ports[node]}"),
        *("--state-dir", str(layout.root / node), "--devices", DEVICES, "--machine-id", f"dev-{node}"),
        *("--port-range", layout.ports.engine_range(node)),
    )
    return Part(node, argv, _environ(layout, node), ask.http(f"{layout.url(node)}/healthz"))


def _router(layout: Layout, programs: Programs, ask: Questions) -> Part:
    argv = (
        *(programs.python, "-m", "router.main", "--listen", f"{HOST}:{layout.ports[ROUTER]}"),
        *("--state-dir", str(layout.root / ROUTER), "--router-id", ROUTER, "--drain-limit-s", "3"),
    )
    return Part(ROUTER, argv, _environ(layout, ROUTER), ask.http(f"{layout.url(ROUTER)}/healthz"))


def plain_environ() -> dict[str, str]:
    """This process's environment without anybody's settings of llmgw or Temporal: the stack is made of flags alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLMGW_", "TEMPORAL_"))}
    return {**kept, "PYTHONUNBUFFERED": "1", "TEMPORAL_CONFIG_FILE": os.devnull}


def _environ(layout: Layout, part: str) -> Mapping[str, str]:
    return mark(plain_environ(), layout.root, part)
