"""What a source of weights names, and where it lies below a weights root. Pure: looks at text, never at a disk.

A weights root is a Hugging Face cache (or holds one in `hub`), so engines that fetch for themselves share it. Beside
it lie `http/HOST/PATH` for files of web servers and `file/PATH` for local copies of files and folders elsewhere.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

OWN = ".llmgw"
"""Folder below a root that is the agent's own: locks, lists of files, what is being deleted."""

_HUB = re.compile(
    r"hf://(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(/(?P<file>[\w./ +-]+))?(@(?P<revision>[\w./-]+))?", re.ASCII
)
_LONGEST_NAME = 255  # bytes, of most file systems
_LONGEST_SOURCE = 2048


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository of the Hugging Face hub at a revision, or one file of it."""

    repo: str
    file: str | None = None
    revision: str = "main"

    @property
    def folder(self) -> str:
        """Its folder's name in a Hugging Face cache."""
        return "models--" + self.repo.replace("/", "--")


@dataclass(frozen=True, slots=True)
class Web:
    """One file of a web server."""

    url: str
    place: str
    """Relative to the weights root."""


@dataclass(frozen=True, slots=True)
class Local:
    """A file or folder by its absolute path on the node."""

    path: str
    place: str
    """Where a copy of it lies, relative to the weights root."""


Source: TypeAlias = Hub | Web | Local


def parse(text: str) -> Source:
    """The source that `text` names. Raises ValueError saying what is wrong, never quoting what may be secret."""
    if len(text) > _LONGEST_SOURCE or not text.isprintable() or "${" in text:
        raise ValueError("a source of weights is at most 2048 printable characters without placeholders")
    if ".." in re.split(r"[/\\]", unquote(text)):
        raise ValueError("a source of weights never holds '..'")
    match text.partition("://")[0]:
        case "hf":
            return _hub(text)
        case "file":
            return _local(text)
        case "http" | "https":
            return _web(text)
    raise ValueError("sources of weights begin with hf://, file://, https:// or http://")


def hub_text(repo: str, revision: str) -> str:
    """The source that names a whole repository; `main` goes without saying."""
    return f"hf://{repo}" if revision == "main" else f"hf://{repo}@{revision}"


def _hub(text: str) -> Hub:
    if (matched := _HUB.fullmatch(text)) is None:
        raise ValueError("write hf://org/repo, hf://org/repo/file or hf://org/repo/file@revision")
    source = Hub(matched["repo"], matched["file"], matched["revision"] or "main")
    for part in (source.repo, source.file or "x", source.revision):
        _placed(part)
    _placed(source.folder)
    return source


def _local(text: str) -> Local:
    path = unquote(urlsplit(text).path)
    if urlsplit(text).netloc or not path.startswith("/") or not path.strip("/") or "\0" in path:
        raise ValueError("a file needs its absolute path: file:///path")
    return Local(path, _placed("file" + str(PurePosixPath(path))))


def _web(text: str) -> Web:
    parts = urlsplit(text)
    if parts.username is not None or parts.query or parts.fragment or not parts.hostname:
        raise ValueError("write https://host/path without user, query or fragment")
    path = unquote(parts.path)
    if not path.strip("/") or path.endswith("/") or "\0" in path:
        raise ValueError("a file of a web server needs its path: https://host/path/model.gguf")
    return Web(text, _placed(f"http/{parts.netloc.lower().replace(':', '_')}{path}"))


def _placed(place: str) -> str:
    """`place` if every step of it can be a file's name that stays where it is put."""
    steps = place.split("/")
    if any(step in ("", ".", "..") or len(step.encode()) > _LONGEST_NAME for step in steps):
        raise ValueError("every step of a source's path is a plain name of at most 255 bytes")
    return place
