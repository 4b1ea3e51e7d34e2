"""What a command prints: pages for people, JSON or YAML for programs. Colours and folding at a terminal only."""

import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from rich.console import Console, RenderableType

from cli.failures import USAGE, CommandError

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsYaml = Annotated[bool, typer.Option("--yaml", help="Print YAML.")]

UNBOUNDED = 4000
"""Columns where output is piped: one row is one line, for grep and awk."""


class Form(StrEnum):
    PAGE = "page"
    JSON = "json"
    YAML = "yaml"


def form_of(as_json: bool, as_yaml: bool) -> Form:
    if as_json and as_yaml:
        raise CommandError(USAGE, "--json and --yaml exclude each other: give one of them")
    return Form.JSON if as_json else Form.YAML if as_yaml else Form.PAGE


def console(*, stderr: bool = False) -> Console:
    """Made when it is used: it belongs to the stream of that moment. COLUMNS, NO_COLOR and FORCE_COLOR are heeded."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else UNBOUNDED
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def print_page(page: RenderableType) -> None:
    """`page` without blanks at the ends of lines."""
    out = console()
    with out.capture() as captured:
        out.print(page)
    for line in captured.get().splitlines():
        print(line.rstrip())


def text_of(value: object, form: Form, *, one_line: bool = False) -> str:
    """`value` (JSON types) as JSON or YAML."""
    if form is Form.YAML:
        from cli.yaml_writing import yaml_of  # late: only where it is asked for

        text = yaml_of(value)
        return f"---\n{text}".rstrip() if one_line else text.rstrip()
    return json.dumps(value, ensure_ascii=False, indent=None if one_line else 2)


def show(value: T, form: Form, plain: Callable[[T], object], page: Callable[[T], RenderableType]) -> None:
    """`value` in the form that was asked for; `plain` makes JSON types of it."""
    if form is Form.PAGE:
        print_page(page(value))
    else:
        print(text_of(plain(value), form))


def warn(*sentences: str) -> None:
    """To standard error, each on a line of its own."""
    for sentence in sentences:
        print(sentence, file=sys.stderr)
