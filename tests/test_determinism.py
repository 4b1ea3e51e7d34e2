"""What runs in a workflow gives the same commands at replay: it takes time, chance and the world around from values.

There is no sandbox that would notice (our own packages would pass through it unseen), so the code is read.
"""

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ASIDE = {"client", "ensure", "past"}
"""Modules of `workflows` that run in programs which talk to a workflow, never in it."""
ANSWERS = {"queries"}
"""Queries are never replayed: they may look at the clock of the worker that answers."""
IN_WORKFLOWS = sorted(path for path in (ROOT / "workflows").glob("*.py") if path.stem not in ASIDE | ANSWERS)
CORE = sorted((ROOT / "llmgw").rglob("*.py"))

PURE = frozenset(
    {
        "asyncio",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "itertools",
        "typing",
        "temporalio",
    }
)
OURS = frozenset({"llmgw", "workflows", "activities"})
REACHED = {"activities": {"handover"}}
"""Of the activities' code only the place where the world is left for the plan."""
OF_DATETIME = frozenset({"timedelta"})
OF_ASYNCIO = frozenset({"create_task", "sleep", "Future", "Task", "CancelledError", "get_running_loop"})
"""Those that Temporal's own event loop makes deterministic."""
CHANCE = frozenset({"hash", "id", "open", "input", "print", "vars", "globals"})


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name), the name empty for a plain import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _not_pure(path: Path) -> Iterator[str]:
    tree = _tree(path)
    for module, name in _imports(tree):
        top = module.partition(".")[0]
        if top not in PURE | OURS:
            yield f"imports {module}"
        if module == "datetime" and name not in OF_DATETIME:
            yield f"imports {name or 'all'} of datetime"
        if top in REACHED and name not in REACHED[top]:
            yield f"imports {name} of {module}"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name not in OF_ASYNCIO:
                yield f"line {node.lineno}: asyncio.{name}"
            case ast.Call(func=ast.Name(id=name)) if name in CHANCE:
                yield f"line {node.lineno}: {name}()"
            case ast.Attribute(attr="unsafe"):
                yield f"line {node.lineno}: workflow.unsafe"
            case _:
                pass


def _clocks(path: Path) -> Iterator[str]:
    """Calls that read a clock."""
    for node in ast.walk(_tree(path)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr="now" | "utcnow" | "today" as name)):
                if base != "workflow":
                    yield f"line {node.lineno}: {base}.{name}()"
            case _:
                pass


@pytest.mark.parametrize("path", IN_WORKFLOWS, ids=lambda path: path.stem)
def test_what_runs_in_a_workflow_takes_nothing_from_around_it(path: Path) -> None:
    assert [*_not_pure(path), *_clocks(path)] == []


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_the_core_that_workflows_call_reads_no_clock(path: Path) -> None:
    """Its imports are held by a contract (`pyproject.toml`)."""
    assert list(_clocks(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import random",
        "from uuid import uuid4",
        "import os",
        "from threading import Lock",
        "from datetime import datetime",
        "import httpx",
        "from activities import pool",
        "asyncio.get_event_loop()",
        "asyncio.gather(a, b)",
        "x = hash(y)",
        "datetime.now()",
        "open('x')",
        "workflow.unsafe.is_replaying()",
    ],
)
def test_each_way_out_is_seen(line: str, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(line + "\n")
    assert [*_not_pure(path), *_clocks(path)] != []


def test_the_names_that_are_looked_for_exist() -> None:
    assert set(CHANCE) <= set(dir(builtins))
