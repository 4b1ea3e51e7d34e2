"""Sources of weights as the catalog writes them: `hf://`, `file://`, `https://`. Looks at the text, fetches nothing."""

import re
from dataclasses import dataclass

from llmgw.problems import quoted

HOW = "write hf://org/repo, hf://org/repo/file@revision, file:///path or https://host/path"

_HUB = re.compile(
    r"hf://(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(/(?P<file>[\w./ +-]+))?(@(?P<revision>[\w./-]+))?", re.ASCII
)
_HTTPS = re.compile(r"https://[^\s/@?#]+/[^\s?#]*[^\s?#/]")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub, or one file of it."""

    repo: str
    file: str | None = None
    revision: str | None = None


def hub_source(source: str) -> HubSource | None:
    """What an `hf://` source names; None for any other source."""
    matched = _HUB.fullmatch(source)
    return HubSource(matched["repo"], matched["file"], matched["revision"]) if matched else None


def unusable_source(source: str) -> str | None:
    """Why `source` cannot name weights, or None. Never quotes what could be a secret."""
    if any(not char.isprintable() for char in source) or "${" in source:
        return "it holds control characters or a placeholder"
    if ".." in re.split(r"[/\\]", source):
        return "it holds `..`"
    scheme = source.partition("://")[0] if "://" in source else ""
    match scheme:
        case "hf":
            return None if hub_source(source) else "it is not hf://org/repo[/file][@revision]"
        case "file":
            path = source.removeprefix("file://")
            return None if path.startswith("/") and path.strip("/") else "a file needs its absolute path: file:///path"
        case "https":
            return None if _HTTPS.fullmatch(source) else "it is not https://host/path (no user, query or fragment)"
        case "":
            return "it has no scheme"
        case _:
            return f"the scheme {quoted(scheme)} is unknown"
