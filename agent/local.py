"""What only the node knows: where an executable is, what a secret's value is, where weights lie.

Each answer is the thing or a `Refusal` that says what to do. Values of secrets leave this module only into the
environment of an engine.
"""

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.containers import ContainerTool
from agent.launch import PYTHON
from llmgw.wire import MAX_ERROR_CHARS, ContainerSpec, Refusal, RefusalCode

_SECRET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def refuse(code: RefusalCode, message: str) -> Refusal:
    return Refusal(code=code, message=message[:MAX_ERROR_CHARS])


@dataclass(frozen=True)
class Executables:
    """The allow-list. Names are looked up on the agent's own PATH, never on one that a launch brings along."""

    allowed: tuple[str, ...] = ()

    def find(self, name: str) -> str | Refusal:
        """The path to execute for argv[0]."""
        found = sys.executable if name == PYTHON else shutil.which(name)
        if found is None:
            return refuse(
                RefusalCode.NOT_FOUND, f"executable {name!r} is not on this node: install it, or put it on PATH"
            )
        if self.allowed and Path(found).resolve() not in self._allowed_files():
            allowed = ", ".join(self.allowed)
            return refuse(RefusalCode.NOT_ALLOWED, f"executable {name!r} is not one of --allow {allowed}")
        return found

    def _allowed_files(self) -> set[Path]:
        return {Path(found).resolve() for name in self.allowed if (found := shutil.which(name)) is not None}


def find_tool(tool: ContainerTool | None, spec: ContainerSpec, allowed: tuple[str, ...]) -> str | Refusal:
    """The path of the container tool, for an image that may be run."""
    if tool is None:
        return refuse(RefusalCode.NOT_FOUND, "no docker or podman on this node: install one, or name --container-tool")
    if spec.image.startswith("-"):
        return refuse(RefusalCode.NOT_ALLOWED, f"{spec.image!r} is no image")
    if allowed and not any(fnmatchcase(spec.image, pattern) for pattern in allowed):
        return refuse(
            RefusalCode.NOT_ALLOWED, f"image {spec.image!r} is not one of --allow-images {', '.join(allowed)}"
        )
    return tool.path


@dataclass(frozen=True)
class Secrets:
    """A file per secret in `folder`; without a folder, variables LLMGW_SECRET_<NAME>."""

    folder: Path | None
    environ: Mapping[str, str]

    def resolve(self, wanted: Mapping[str, str]) -> dict[str, str] | Refusal:
        """Variable -> value for `wanted` (variable -> secret name); a refusal names all that are missing."""
        values = {variable: self._value(name) for variable, name in wanted.items()}
        missing = sorted({wanted[variable] for variable, value in values.items() if value is None})
        if missing:
            where = f"files in {self.folder}" if self.folder else "variables LLMGW_SECRET_<NAME> of the agent"
            return refuse(
                RefusalCode.NO_SECRET, f"secrets not on this node: {', '.join(missing)}; give them as {where}"
            )
        return {variable: value for variable, value in values.items() if value is not None}

    def _value(self, name: str) -> str | None:
        if _SECRET_NAME.fullmatch(name) is None:
            return None
        if self.folder is None:
            return self.environ.get("LLMGW_SECRET_" + re.sub(r"[.-]", "_", name).upper())
        try:
            return (self.folder / name).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None


def weights_argument(source: str) -> str | Refusal:
    """What `${llmgw:weights}` becomes: a file's path, or the repository's name for engines that fetch it themselves."""
    parts = urlsplit(source)
    if parts.scheme == "file":
        path = unquote(parts.path)
        if not Path(path).exists():
            return refuse(RefusalCode.NOT_FOUND, f"weights {source} are not on this node")
        return path
    if parts.scheme == "hf":
        return source.removeprefix("hf://").partition("@")[0]
    return refuse(RefusalCode.UNSUPPORTED, f"weights {source}: this agent takes file:// and hf:// sources")
