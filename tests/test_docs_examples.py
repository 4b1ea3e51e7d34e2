"""Every example in the docs works: commands parse, catalogs are valid, links lead somewhere, pictures can be read."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from typer.core import TyperGroup

from cli import yaml_text
from cli.main import app, arranged
from cli.processes import PROCESSES
from llmgw.catalog import Catalog
from llmgw.validation import check

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"cli.md"}
"""Made from the commands themselves."""

COMMAND = re.compile(r"`llmgw ([^`]+)`")
PLACEHOLDERS = {"FILE": "x.yaml", "N": "2", "GENERATION": "1", "URL": "http://a:1", "PATH": "/w/x", "HASH": "0" * 32}
"""Words in capitals that stand for something that is parsed."""


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield text


def commands_in(page: Path) -> Iterator[str]:
    """What follows `llmgw` in the page's code, inline or after a prompt."""
    for text in blocks(page, "console", "sh", "bash"):
        joined = re.sub(r"\\\n\s*", " ", text)
        for line in re.findall(r"^[\w-]*\$ (.*)$", joined, re.MULTILINE):
            for part in re.split(r"&&|\|", line.partition("  #")[0]):
                if (found := re.match(r"\s*(?:[A-Z_]+=\S+ )*llmgw (.+)", part)) is not None:
                    yield found[1].strip()
    yield from (found.strip() for found in COMMAND.findall(page.read_text()))


EVERY = sorted({(page.name, line) for page in PAGES if page.name not in GENERATED for line in commands_in(page)})


@pytest.mark.parametrize(("page", "line"), EVERY, ids=lambda value: str(value)[:60])
def test_a_command_in_the_docs_is_one(page: str, line: str) -> None:
    """Parses and runs nothing: an unknown command or flag is a usage error here."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line.replace("…", ""))]
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    valued = {flag for p in root.params for flag in p.opts if not getattr(p, "is_flag", False)}
    words = arranged(words, valued, PROCESSES)
    if words[:1] == ["--help"]:
        return
    command: Any = root
    while words and words[0].startswith("--"):
        words = words[2:]
    path = "llmgw"
    while isinstance(command, TyperGroup) and words:
        name = words[0].removesuffix(",")
        if "|" in name:
            name = name.split("|")[0]
        assert name in command.commands, f"{page}: {path} has no command {name}"
        command, path, words = command.commands[name], f"{path} {name}", words[1:]
    flags = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)} | {"--help"}
    if path.removeprefix("llmgw ") not in PROCESSES:
        given = [word.split("=")[0] for word in words if word.startswith("-") and not re.fullmatch(r"-\d+|-", word)]
        assert set(given) <= flags, f"{page}: `llmgw {line}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_catalog_in_the_docs_is_valid(page: Path) -> None:
    for text in blocks(page, "yaml"):
        source = yaml_text.parse(text)
        if isinstance(source.raw, dict) and set(source.raw) <= _catalog_fields():
            assert check(source.raw, source.lines).problems == (), text


def _catalog_fields() -> set[str]:
    return set(Catalog.model_fields)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_in_the_docs_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_says_what_it_shows(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text())  # noqa: S314 - our own file
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names
    assert "image" not in names
    assert "script" not in names


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            waiting += [page.parent / link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]
    assert [page.name for page in PAGES if page.resolve() not in reached] == []
