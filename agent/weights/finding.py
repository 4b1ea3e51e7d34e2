"""Where the weights of a source lie on this node, whether they are whole, and what an engine is told of them.

Reads the disk and changes nothing. Blocking, and quick: names and sizes, one header per file of weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.local import refuse
from agent.weights.filelists import read_list
from agent.weights.hub_cache import blobs_of, commit_of, hub_folder, repository, snapshot_of
from agent.weights.presence import NOTHING, Presence, look
from agent.weights.sources import Hub, Local, Source, Web, parse
from llmgw.wire import LaunchSpec, Refusal, RefusalCode

_PLACEHOLDER = "${llmgw:weights}"


@dataclass(frozen=True)
class Found:
    """`place`: where the source lies or would lie; None when this node has no place for it."""

    place: Path | None
    presence: Presence


def find(source: Source, root: Path | None) -> Found:
    """The source on this node's disk: below the root, or for a local one where it says."""
    match source:
        case Local(path=path, place=place):
            copy = look(root / place, read_list(root, place)) if root is not None else NOTHING
            if root is not None and copy.complete:
                return Found(root / place, copy)
            return Found(Path(path), look(Path(path)))
        case Web(place=place):
            return (
                Found(None, NOTHING)
                if root is None
                else Found(root / place, look(root / place, read_list(root, place)))
            )
        case Hub():
            return Found(None, NOTHING) if root is None else _find_hub(source, root)


def find_pulled(source: Source, root: Path | None) -> Found:
    """As `find`, but of a local source its copy below the root counts alone: that is what a pull makes."""
    if isinstance(source, Local) and root is not None and not Path(source.path).is_relative_to(root):
        place = root / source.place
        return Found(place, look(place, read_list(root, source.place)))
    return find(source, root)


def list_key(source: Source, commit: str = "") -> str:
    """Under which a pull keeps its list of files; `commit`: what the revision of a repository means."""
    if isinstance(source, Hub):
        return f"{source.folder}@{commit}" + (f"/{source.file}" if source.file else "")
    return source.place


def _find_hub(source: Hub, root: Path) -> Found:
    snapshot = snapshot_of(root, source)
    if snapshot is None:
        return Found(None, NOTHING)
    listed = read_list(root, list_key(source, snapshot.name))
    if source.file is None:
        return Found(snapshot, look(snapshot, listed))
    place = snapshot / source.file
    return Found(place, look(place, {name.rpartition("/")[2]: size for name, size in listed.items()}))


def argument(launch: LaunchSpec, root: Path | None) -> str | Refusal:
    """What `${llmgw:weights}` becomes: the path of weights that are whole here, or a repository's name for an engine
    that fetches it itself. Nobody starts on weights that cannot be loaded."""
    if launch.weights is None:
        return ""
    try:
        source = parse(launch.weights)
    except ValueError as error:
        return refuse(RefusalCode.UNSUPPORTED, f"weights {launch.weights}: {error}")
    found = find(source, root)
    if found.place is not None and found.presence.complete:
        return str(found.place)
    if isinstance(source, Hub) and (source.file is None or not _asks_for_path(launch)):
        return source.repo
    lacks = "they are not on this node" if found.presence == NOTHING else found.presence.why
    how = "put them there" if isinstance(source, Local) else "pull them first"
    return refuse(RefusalCode.NOT_FOUND, f"weights {launch.weights}: {lacks}; {how}")


def _asks_for_path(launch: LaunchSpec) -> bool:
    return any(_PLACEHOLDER in text for text in (*launch.argv, *launch.env.values()))


def hub_environment(root: Path | None, own: Mapping[str, str]) -> dict[str, str]:
    """What makes an engine fetch into the root, unless its own environment says where to."""
    if root is None or not own.keys().isdisjoint({"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}):
        return {}
    return {"HF_HUB_CACHE": str(hub_folder(root))}


def places_used(launch: LaunchSpec, root: Path) -> set[Path]:
    """Files and folders that a replica with this launch may be reading: by its weights, and by paths below the root
    that its arguments or environment name. Links are given as themselves and as what they lead to."""
    used: set[Path] = set()
    if launch.weights is not None:
        used |= places_of(launch.weights, root)
    for text in (*launch.argv, *launch.env.values()):
        for item in (text, text.partition("=")[2]):
            path = Path(item) if item.startswith("/") and "\0" not in item else None
            if path is not None and path.is_relative_to(root) and path != root:
                used |= _with_targets(path)
    return used


def places_of(text: str, root: Path) -> set[Path]:
    """Files and folders that the source `text` needs; the whole repository where its revision is not known here."""
    try:
        source = parse(text)
    except ValueError:
        return set()
    match source:
        case Web(place=place):
            return _with_targets(root / place)
        case Local(path=path, place=place):
            return _with_targets(Path(path)) | _with_targets(root / place)
        case Hub():
            repo = repository(root, source)
            commit = commit_of(repo, source.revision)
            if commit is None:
                return {repo}
            snapshot = repo / "snapshots" / commit
            if not snapshot.is_dir():
                return {repo}
            refs = repo / "refs" / source.revision
            return {snapshot, refs, *blobs_of(snapshot)}


def _with_targets(path: Path) -> set[Path]:
    if path.is_symlink() or not path.is_dir():
        return {path, path.resolve()}
    return {path, path.resolve(), *blobs_of(path)}
