"""`llmgw import` and `llmgw export`: catalogs from other tools' files, and the catalog in force as a file."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asking import ask
from cli.failures import REFUSED, USAGE, CommandError
from cli.output import AsJson, AsYaml, Form, form_of, text_of, warn
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from cli.foreign_text import Foreign
    from llmgw.importing.account import Remark
    from llmgw.importing.importer import Imported, Refused
    from llmgw.problems import Lines

SHOWN = 5
"""Places of one and the same remark that a page names; JSON names all."""


class Kind(StrEnum):
    """Tools whose files can be imported: the keys of `llmgw.importing.kinds.SOURCES`."""

    GPUSTACK = "gpustack"
    LLAMA_SWAP = "llama-swap"
    KUBEAI = "kubeai"
    LITELLM = "litellm"
    RAY = "ray"
    PRODUCTION_STACK = "production-stack"


def import_file(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help=f"Whose file it is: {', '.join(Kind)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file, YAML or JSON; - reads standard input.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the catalog there, as YAML.")
    ] = None,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Make a catalog of another tool's file, and list what could not be carried over.

    The catalog, which is valid, goes to standard output; everything that is lost, changed or assumed goes to standard
    error, with its line and the reason. --json and --yaml print both as one document. Nothing is sent: read it, add
    nodes and routers, then `apply` it. Ends with 1 when the file describes no model that can be carried over, 2 when
    it cannot be read.
    """
    from llmgw.importing.importer import Refused, imported  # late, for a quick `llmgw --help`

    form = form_of(as_json, as_yaml)
    foreign = _foreign(file)
    found = imported(str(kind), spread(foreign.raw), foreign.unread)
    if isinstance(found, Refused):
        _refuse(file, found, foreign, form)
        raise typer.Exit(REFUSED)
    if form is not Form.PAGE:
        print(text_of({"catalog": dict(found.catalog), **_plain(found.remarks, foreign.lines)}, form))
        return
    text = text_of(dict(found.catalog), Form.YAML)
    if output is None:
        print(text)
    else:
        _write(output, text)
    warn(*_report(file, found, foreign.lines))


def export(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A catalog's file, in place of the one in force.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Print the catalog in force as YAML that `apply` takes, in one plain form.

    Defaults are left out, anchors spread, and what has no order is sorted, so that two exports of the same content are
    the same text: keep them in version control. Nodes and routers that were added beside the catalog are not in it.
    """
    from cli.catalogs import checked  # late, as above
    from cli.versions import kept_catalog, understood
    from llmgw.catalog import plain

    form = form_of(as_json, as_yaml)
    session: Session = context.obj
    if file is None:
        catalog = understood(ask(session, kept_catalog), "the catalog in force")
    else:
        _, catalog = checked(file)
    text = text_of(plain(catalog), Form.JSON if form is Form.JSON else Form.YAML)
    if output is None:
        print(text)
    else:
        _write(output, text)


def _foreign(file: Path) -> "Foreign":
    from cli.foreign_text import read  # late, as above
    from cli.source import UnreadableError

    try:
        return read(file)
    except OSError as error:
        raise CommandError(USAGE, f"cannot read {file}: {error.strerror}") from error
    except UnreadableError as error:
        places = (f":{p.line}:{p.column}" if p.line is not None else "" for p in error.problems)
        said = (f"{file}{place}: {p.what}; {p.mend}" for place, p in zip(places, error.problems, strict=True))
        warn(*said)
        raise CommandError(USAGE, "nothing was imported") from error


def spread(raw: object) -> object:
    """`raw` with the YAML that a RayService holds as a text (`serveConfigV2`) read."""
    from cli.foreign_text import embedded  # late, as above

    if isinstance(raw, list):
        return [spread(item) for item in raw]
    if not isinstance(raw, dict) or raw.get("kind") != "RayService" or not isinstance(raw.get("spec"), dict):
        return raw
    inner = raw["spec"].get("serveConfigV2")
    read = embedded(inner) if isinstance(inner, str) else None
    return raw if read is None else {**raw, "spec": {**raw["spec"], "serveConfigV2": read}}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(USAGE, f"cannot write {path}: {error.strerror}") from error


# --- what is told --------------------------------------------------------------------------------------------------


def _refuse(file: Path, found: "Refused", foreign: "Foreign", form: Form) -> None:
    said = f"{found.finding.what}; {found.finding.mend}"
    if form is not Form.PAGE:
        print(text_of({"catalog": None, "refused": said, **_plain(found.remarks, foreign.lines)}, form))
        return
    warn(f"{file}: {said}", *_lines(found.remarks, foreign.lines))


def _report(file: Path, found: "Imported", lines: "Lines") -> Iterator[str]:
    from llmgw.importing.account import Fate  # late, as above
    from llmgw.sentences import counted

    fates = [remark.fate for remark in found.remarks]
    counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in Fate if fate in fates)
    open_ = f", {found.open_count} of them without a launch and with 0 replicas" if found.open_count else ""
    yield f"{file}: {counted(found.model_count, 'model')} carried over{open_}; {counts or 'nothing lost'}"
    yield from _lines(found.remarks, lines)


def _lines(remarks: "Sequence[Remark]", lines: "Lines") -> Iterator[str]:
    """One line for each distinct remark, with the places it is about; by fate, in the order of the file."""
    from llmgw.importing.account import Fate  # late, as above

    for fate in Fate:
        groups: dict[tuple[str, str, str], list[Remark]] = {}
        for remark in remarks:
            if remark.fate is fate:
                groups.setdefault((_pattern(remark), remark.what, remark.why), []).append(remark)
        for (pattern, what, why), same in groups.items():
            yield f"  {fate}: {pattern}{_places(same, lines)}: {f'{what}: ' if what else ''}{why}"


def _pattern(remark: "Remark") -> str:
    """The path without the numbers of list items."""
    from llmgw.problems import path_text  # late, as above

    return path_text(tuple(step for step in remark.at if not isinstance(step, int))) or "the file"


def _places(same: "Sequence[Remark]", lines: "Lines") -> str:
    """` (line 7)`, ` (24 places, lines 7, 9, 12, …)`."""
    from llmgw.problems import position_of  # late, as above

    found = [position for remark in same if (position := position_of(remark.at, lines)) is not None]
    numbers = list(dict.fromkeys(position.line for position in found))
    shown = ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")
    word = "line" if len(numbers) == 1 else "lines"
    count = f"{len(same)} places, " if len(same) > 1 else ""
    return f" ({count}{word} {shown})" if numbers else ""


def _plain(remarks: "Sequence[Remark]", lines: "Lines") -> dict[str, object]:
    from llmgw.importing.account import Fate  # late, as above
    from llmgw.problems import path_text, position_of

    def plain(remark: "Remark") -> dict[str, object]:
        position = position_of(remark.at, lines)
        line, column = position if position is not None else (None, None)
        return {"path": path_text(remark.at), "line": line, "column": column, "what": remark.what, "why": remark.why}

    return {str(fate): [plain(remark) for remark in remarks if remark.fate is fate] for fate in Fate}
