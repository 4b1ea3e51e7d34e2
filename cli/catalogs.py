"""Commands about catalogs: check one, print its schema, put one in force and wait until the fleet is there."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.reach import OK, REFUSED, TIMED_OUT, USAGE, Options, fail, leave, with_fleet

POLL_S = 0.3
CALM = ("steady",)


def add_to(app: typer.Typer) -> None:
    app.command("validate", help="Check a catalog file: every problem with its place and how to mend it")(validate)
    app.command("schema", help="Print the JSON Schema of a catalog")(schema)
    app.command("apply", help="Replace the fleet's catalog and wait until it is in force")(apply)


def validate(file: Annotated[Path, typer.Argument(help="YAML or JSON")]) -> None:
    _, code = _checked(file)
    leave(code)


def schema() -> None:
    from llmgw.validation import catalog_schema  # late: quick help

    print(json.dumps(catalog_schema(), indent=2))
    leave(OK)


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="YAML or JSON")],
    wait: Annotated[bool, typer.Option(help="Wait until everything wanted is ready")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most")] = 600.0,
) -> None:
    options: Options = context.obj
    raw, code = _checked(file)
    if code != OK:
        leave(code)
    leave(with_fleet(options, lambda fleet: _apply(options, fleet, _sendable(raw), timeout if wait else 0.0)))


def _checked(file: Path) -> tuple[Any, int]:
    """The raw catalog and an exit code; problems and warnings are told on standard error."""
    from cli.catalog_file import UnreadableError, read  # late: quick help
    from llmgw.catalog import MAX_COMPRESSED_BYTES
    from llmgw.validation import check

    try:
        source = read(file)
    except OSError as error:
        fail(USAGE, f"cannot read {file}: {error.strerror}")
    except UnreadableError as error:
        for problem in error.problems:
            print(f"{file}: {problem}", file=sys.stderr)
        return None, REFUSED
    found = check(source.raw, source.lines, limit_bytes=MAX_COMPRESSED_BYTES)
    for problem in found.problems:
        print(f"{file}: {problem}", file=sys.stderr)
    for warning in found.warnings:
        print(f"{file}: warning: {warning}", file=sys.stderr)
    if found.catalog is None:
        print(f"{file}: refused, {len(found.problems)} problem(s); nothing was changed", file=sys.stderr)
        return source.raw, REFUSED
    print(f"{file}: valid, {len(found.catalog.models)} model(s)", file=sys.stderr)
    return source.raw, OK


def _sendable(raw: Any) -> Any:
    """Plain while it is small, so that it is readable in Temporal's UI; compressed beyond."""
    from llmgw.canonical import canonical_json  # late: quick help
    from llmgw.catalog import MAX_PLAIN_BYTES
    from llmgw.catalog_input import compress_catalog

    return raw if len(canonical_json(raw)) <= MAX_PLAIN_BYTES else compress_catalog(raw)


async def _apply(options: Options, fleet: Any, raw: Any, limit_s: float) -> int:
    verdict = await fleet.apply(raw)
    if options.output == "json":
        print(json.dumps(verdict.model_dump(mode="json"), indent=2))
    else:
        print(f"{verdict.judgement}: {verdict.text}")
        for line in (*verdict.differences, *(f"warning: {w}" for w in verdict.warnings), *verdict.problems):
            print(f"  {line}")
    if verdict.judgement not in ("accepted", "unchanged"):
        return REFUSED
    return await _converged(fleet, limit_s) if limit_s else OK


async def _converged(fleet: Any, limit_s: float) -> int:
    """Wait until the fleet is calm; what it waits for is told when it changes."""
    end = time.monotonic() + limit_s
    told = ""
    while time.monotonic() < end:
        status = await fleet.query("status")
        if status["phase"] in CALM:
            print("everything wanted is ready and published")
            return OK
        waiting = "; ".join(f"{w['subject']}: {w['text']}" for w in status.get("waiting", ())[:3])
        line = f"{status['phase']}{': ' + waiting if waiting else ''}"
        if line != told:
            print(line)
            told = line
        await asyncio.sleep(POLL_S)
    print(f"not there after {limit_s:g} s: {told}", file=sys.stderr)
    return TIMED_OUT
