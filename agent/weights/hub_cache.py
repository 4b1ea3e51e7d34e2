"""The Hugging Face cache on disk, read: revisions, snapshots and the blobs that their links lead to.

Layout: `models--ORG--NAME/refs/REVISION` holds a commit; `snapshots/COMMIT/FILE` are links to `blobs/HASH`; unfinished
downloads are `blobs/*.incomplete` (huggingface_hub, "Understand caching"). It never writes.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from agent.weights.sources import Hub

COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"models--(?P<org>[A-Za-z0-9][\w.-]*?)--(?P<name>[A-Za-z0-9][\w.-]*)", re.ASCII)


def hub_folder(root: Path) -> Path:
    """Where repositories lie: the root itself, or `hub` in it where the root is laid out as an HF_HOME."""
    return root / "hub" if (root / "hub").is_dir() else root


def repository(root: Path, source: Hub) -> Path:
    return hub_folder(root) / source.folder


def repositories(root: Path) -> Iterator[tuple[str, Path]]:
    """(org/name, its folder) of each repository below the root."""
    folder = hub_folder(root)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (matched := _REPO.fullmatch(path.name)) is not None and path.is_dir():
            yield f"{matched['org']}/{matched['name']}", path


def commit_of(repo: Path, revision: str) -> str | None:
    """The commit that a revision means here; None when this cache does not know it."""
    if COMMIT.fullmatch(revision):
        return revision
    try:
        commit = (repo / "refs" / revision).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def snapshot_of(root: Path, source: Hub) -> Path | None:
    """The folder with the revision's files, present or not; None when the revision is not known here."""
    repo = repository(root, source)
    commit = commit_of(repo, source.revision)
    return None if commit is None else repo / "snapshots" / commit


def revisions(repo: Path) -> dict[str, str]:
    """Revision name -> commit, for every ref; a snapshot that no ref names goes by its commit."""
    found: dict[str, str] = {}
    refs = repo / "refs"
    for path in sorted(refs.rglob("*")) if refs.is_dir() else ():
        name = str(path.relative_to(refs))
        if path.is_file() and (commit := commit_of(repo, name)) is not None:
            found[name] = commit
    snapshots = repo / "snapshots"
    for path in sorted(snapshots.iterdir()) if snapshots.is_dir() else ():
        if COMMIT.fullmatch(path.name) and path.name not in found.values():
            found[path.name] = path.name
    return found


def links_of(snapshot: Path) -> Iterator[Path]:
    """Every file and link of a snapshot, folders left out; links to folders are not followed."""
    for path in sorted(snapshot.rglob("*")) if snapshot.is_dir() else ():
        if path.is_symlink() or not path.is_dir():
            yield path


def blobs_of(snapshot: Path) -> set[Path]:
    """The files that a snapshot's links lead to, resolved; links into nothing left out."""
    return {path.resolve() for path in links_of(snapshot) if path.exists()}
