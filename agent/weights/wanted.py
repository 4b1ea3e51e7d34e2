"""What a source consists of: its pieces, asked of the hub, a web server or the node's own disk.

Runs in a pull's own process, so that the agent itself never loads the hub's library.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import httpx

from agent.weights.filelists import write_list
from agent.weights.finding import list_key
from agent.weights.hub_cache import COMMIT, links_of, repository
from agent.weights.pieces import FromDisk, FromWeb, Piece, PullError, check_answer
from agent.weights.presence import WEIGHT_SUFFIXES, shards_of
from agent.weights.sources import Hub, Local, Web, parse

_ASK_S = 30.0
_SECOND_CHOICE = frozenset({".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".ot", ".tflite"})
"""Formats left where they are when a repository has safetensors: engines load those."""


@dataclass(frozen=True)
class Wanted:
    """`announce` makes the pieces known before the first comes: their list, and what the revision means. So what is
    there only in part is known to be so, whatever happens."""

    pieces: tuple[Piece, ...]
    announce: Callable[[], None]

    @property
    def total_bytes(self) -> int | None:
        sizes = [piece.size for piece in self.pieces]
        return None if None in sizes else sum(size or 0 for size in sizes)


def wanted(text: str, root: Path, client: httpx.Client, token: str | None) -> Wanted:
    """What the source `text` consists of. Raises ValueError, PullError, OSError, httpx.HTTPError."""
    match source := parse(text):
        case Hub():
            return _of_hub(source, text, root, client, token)
        case Web():
            return _of_web(source, text, root, client, token)
        case Local():
            return _of_disk(source, text, root)
        case _:
            assert_never(source)


# --- the hub -------------------------------------------------------------------------------------------------------


def _of_hub(source: Hub, named: str, root: Path, client: httpx.Client, token: str | None) -> Wanted:
    from huggingface_hub import HfApi, get_token, hf_hub_url  # slow to load, and only a pull from the hub needs it
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    api = HfApi(token=token)
    try:
        info = api.model_info(source.repo, revision=source.revision, files_metadata=True, timeout=_ASK_S, token=token)
    except GatedRepoError as error:
        raise PullError("denied", f"{source.repo} is gated: ask for access, and name a secret with a token") from error
    except RepositoryNotFoundError as error:
        raise PullError("absent", f"the hub knows no {source.repo}, or shows it only to a token it knows") from error
    except RevisionNotFoundError as error:
        raise PullError("absent", f"{source.repo} has no revision {source.revision}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "nothing"
        kind, how = (
            ("denied", ": name a secret that holds a token it knows") if status in (401, 403) else ("network", "")
        )
        raise PullError(kind, f"the hub answers {status} for {source.repo}{how}") from error
    commit = info.sha or ""
    if not COMMIT.fullmatch(commit):
        raise PullError("bad", f"the hub tells no commit for {source.repo}@{source.revision}")
    files = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    repo = repository(root, source)
    known = token or get_token()
    headers = {} if known is None else {"Authorization": f"Bearer {known}"}
    pieces: list[Piece] = []
    for name in _chosen(source, tuple(files)):
        lfs, digest = files[name].lfs, files[name].blob_id
        sha256 = lfs.sha256 if lfs is not None else None
        blob = _plain_name(sha256 or digest or "", source.repo)
        url = hf_hub_url(source.repo, name, revision=commit, endpoint=api.endpoint)
        fetch = FromWeb(client, url, headers, validated=True)
        link = repo / "snapshots" / commit / name
        pieces.append(Piece(name, files[name].size, repo / "blobs" / blob, fetch, sha256, link))

    def announce() -> None:
        write_list(root, list_key(source, commit), named, _sizes(pieces))
        if source.revision != commit:
            _write_ref(repo / "refs" / source.revision, commit)

    return Wanted(tuple(pieces), announce)


def _chosen(source: Hub, names: tuple[str, ...]) -> tuple[str, ...]:
    """The files to bring, in their order. Raises PullError when what is asked for is not there."""
    for name in names:
        if name.startswith("/") or any(step in ("", ".", "..") for step in name.split("/")):
            raise PullError("bad", f"{source.repo} has a file whose name leads out of it")
    if source.file is not None:
        asked = shards_of(source.file) or (source.file,)
        if missing := [name for name in asked if name not in names]:
            raise PullError("absent", f"{source.repo}@{source.revision} has no file {missing[0]}")
        return asked
    if not names:
        raise PullError("absent", f"{source.repo}@{source.revision} has no files")
    if any(name.endswith(".safetensors") and "/" not in name for name in names):
        return tuple(name for name in names if Path(name).suffix not in _SECOND_CHOICE and not _is_original(name))
    return names


def _is_original(name: str) -> bool:
    """A second copy of the weights, in the form in which they were first published."""
    return "/" in name and name.startswith(("original/", "consolidated/")) and Path(name).suffix in WEIGHT_SUFFIXES


def _plain_name(digest: str, repo: str) -> str:
    if not digest or not digest.isalnum():
        raise PullError("bad", f"the hub tells no hash for a file of {repo}")
    return digest


def _write_ref(path: Path, commit: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(commit)
    draft.replace(path)


# --- web servers and the disk --------------------------------------------------------------------------------------


def _of_web(source: Web, text: str, root: Path, client: httpx.Client, token: str | None) -> Wanted:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    head, _, last = source.url.rpartition("/")
    final = root / source.place
    pieces = []
    for name in shards_of(last) or (last,):
        url = f"{head}/{name}"
        place = final.with_name(name) if name != last else final
        pieces.append(Piece(place.name, _size_of(client, url, headers), place, FromWeb(client, url, headers)))
    return _listed(tuple(pieces), root, source, text)


def _size_of(client: httpx.Client, url: str, headers: Mapping[str, str]) -> int | None:
    """Bytes of the file there; None when the server does not tell. Asked by GET: not every server knows HEAD."""
    with client.stream("GET", url, headers={**headers, "Accept-Encoding": "identity"}) as answer:
        check_answer(answer, url)
        told = answer.headers.get("content-length", "")
        return int(told) if told.isdigit() else None


def _of_disk(source: Local, text: str, root: Path) -> Wanted:
    origin, target = Path(source.path), root / source.place
    if not origin.exists():
        raise PullError("absent", f"there is no {origin} on this node")
    if origin.is_dir():
        found = {str(path.relative_to(origin)): path for path in links_of(origin)}
        places = {name: target / name for name in found}
    else:
        found = {name: origin.with_name(name) for name in shards_of(origin.name)} or {origin.name: origin}
        places = {name: target.with_name(name) for name in found}
    pieces = tuple(Piece(name, path.stat().st_size, places[name], FromDisk(path)) for name, path in found.items())
    return _listed(pieces, root, source, text)


def _listed(pieces: tuple[Piece, ...], root: Path, source: Web | Local, text: str) -> Wanted:
    return Wanted(pieces, lambda: write_list(root, list_key(source), text, _sizes(pieces)))


def _sizes(pieces: Iterable[Piece]) -> dict[str, int]:
    return {piece.name: piece.size for piece in pieces if piece.size is not None}
