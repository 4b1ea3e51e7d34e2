"""Sources of weights as the catalog writes them: `hf://`, `file://`, `https://`, `http://`. Fetches nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llmgw.placeholders import WEIGHTS, placeholder
from llmgw.problems import quoted
from llmgw.wire import LaunchSpec, WeightsReport

HOW = "write hf://org/repo, hf://org/repo/file@revision, file:///path or https://host/path"

_HUB = re.compile(
    r"hf://(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(/(?P<file>[\w./ +-]+))?(@(?P<revision>[\w./-]+))?", re.ASCII
)
_WEB = re.compile(r"https?://[^\s/@?#]+/[^\s?#]*[^\s?#/]")


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
        case "https" | "http":
            return None if _WEB.fullmatch(source) else "it is not https://host/path (no user, query or fragment)"
        case "":
            return "it has no scheme"
        case _:
            return f"the scheme {quoted(scheme)} is unknown"


TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Under which engines expect the hub's token: the secret named there serves a pull as well."""


def must_be_pulled(spec: LaunchSpec) -> bool:
    """Whether the engine needs these weights as a file on the node and cannot fetch it itself."""
    if spec.weights is None:
        return False
    hub = hub_source(spec.weights)
    if hub is None:
        return spec.weights.startswith(("http://", "https://"))
    wanted = placeholder(WEIGHTS)
    return hub.file is not None and any(wanted in text for text in (*spec.argv, *spec.env.values()))


def pull_secret(spec: LaunchSpec) -> str | None:
    """Name of the secret that holds the hub's token for these weights."""
    if spec.weights is None or hub_source(spec.weights) is None:
        return None
    return next((spec.secret_env[name] for name in TOKEN_VARIABLES if name in spec.secret_env), None)


def row_of(rows: Iterable[WeightsReport], source: str | None) -> WeightsReport | None:
    """What a node tells of `source`."""
    return next((row for row in rows if row.source == source), None)


def on_the_way(row: WeightsReport) -> str:
    """A pull's progress in words that change ten times, not with every byte."""
    if not row.total_bytes or not row.bytes:
        return row.reason
    return f"{row.reason}: {10 * (10 * row.bytes // row.total_bytes)} % of {row.total_bytes / 2**30:.1f} GiB"
