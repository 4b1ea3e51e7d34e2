"""Commands about catalogs: check a file, print the schema. Nothing here reaches a fleet."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failures import REFUSED, USAGE, CommandError
from cli.output import AsJson, AsYaml, Form, form_of, text_of, warn

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.catalog import Catalog
    from llmgw.problems import Problem
    from llmgw.validation import Checked

File = Annotated[Path, typer.Argument(metavar="FILE", help="A catalog in YAML or JSON; - reads standard input.")]


def validate(file: File, as_json: AsJson = False, as_yaml: AsYaml = False) -> None:
    """Check a catalog: every problem with its place and how to mend it, and what is worth a look.

    Ends with 0 when it is valid (with warnings or without), 1 when there are problems, 2 when the file cannot be read.
    """
    form = form_of(as_json, as_yaml)
    _, found = _judged(file)
    if form is Form.PAGE:
        print("\n".join(_lines(file, found)))
    else:
        print(text_of(_plain(found), form))
    if found.catalog is None:
        raise typer.Exit(REFUSED)


def schema() -> None:
    """Print the JSON Schema of a catalog, for editors and other programs."""
    from cli.catalog_reference import schema_text  # late, for a quick `llmgw --help`

    print(schema_text(), end="")


def checked(file: Path) -> tuple[dict[str, Any], "Catalog"]:
    """What is to be sent, and the catalog it means. Problems and warnings go to standard error; the former end it."""
    raw, catalog, _ = checked_and_warned(file)
    return raw, catalog


def checked_and_warned(file: Path) -> tuple[dict[str, Any], "Catalog", frozenset[str]]:
    """As `checked`, and the warnings as a fleet's verdict words them."""
    raw, found = _judged(file)
    if found.catalog is None or not isinstance(raw, dict):
        warn(*_lines(file, found))  # as they are, so that editors find the places
        raise CommandError(REFUSED, "nothing was sent")
    warn(*(_line(file, warning) for warning in found.warnings))
    return raw, found.catalog, frozenset(replace(w, line=None, column=None).sentence() for w in found.warnings)


def _judged(file: Path) -> tuple[object, "Checked"]:
    """The document and the verdict on it. `CommandError` when the file cannot be read."""
    from cli.catalog_file import UnreadableError, parse, read  # late, as above
    from llmgw.catalog import MAX_COMPRESSED_BYTES
    from llmgw.validation import Checked, check

    try:
        source = parse(sys.stdin.read()) if str(file) == "-" else read(file)
    except OSError as error:
        raise CommandError(USAGE, f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(USAGE, f"cannot read {file}: not UTF-8 text") from error
    except UnreadableError as error:
        return None, Checked(None, error.problems)
    return source.raw, check(source.raw, source.lines, limit_bytes=MAX_COMPRESSED_BYTES)


def _lines(file: Path, found: "Checked") -> Iterator[str]:
    yield from (_line(file, problem) for problem in (*found.problems, *found.warnings))
    from llmgw.sentences import counted  # late, as above

    warnings = f", {counted(len(found.warnings), 'warning')}" if found.warnings else ""
    if found.catalog is None:
        yield f"{file}: {counted(len(found.problems), 'problem')}{warnings}"
    else:
        yield f"{file}: valid, {counted(len(found.catalog.models), 'model')}{warnings}"


def _line(file: Path, problem: "Problem") -> str:
    """`catalog.yaml:3:5: models[0].name: what; mend`, as compilers and editors know it."""
    place = "" if problem.line is None else f":{problem.line}:{problem.column}"
    warning = "warning: " if problem.severity == "warning" else ""
    where = f"{problem.path}: " if problem.path else ""
    mend = f"; {problem.mend}" if problem.mend else ""
    return f"{file}{place}: {warning}{where}{problem.what}{mend}"


def _plain(found: "Checked") -> object:
    def plain(problem: "Problem") -> dict[str, object]:
        names = ("path", "line", "column", "what", "mend")
        return {name: getattr(problem, name) for name in names}

    return {
        "valid": found.catalog is not None,
        "problems": [plain(p) for p in found.problems],
        "warnings": [plain(p) for p in found.warnings],
    }
