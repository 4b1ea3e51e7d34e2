"""Removal of weights: below the root only, by handles, never through a link, never what is used, and blobs last."""

import os
from pathlib import Path

import pytest

from agent.weights import removal
from agent.weights.finding import places_of, places_used
from agent.weights.freeing import freed_bytes
from agent.weights.removal import empty_trash, remove_weights
from llmgw.wire import LaunchSpec, Outcome, RefusalCode, RemoveWeights
from tests.agent.hub_server import COMMIT, OTHER, model


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A weights root with folders, links out of it, a repository of two revisions; and something precious beside it."""
    root, precious = tmp_path / "w", tmp_path / "precious"
    for folder in (root / "a", root / "b", root / "used", precious):
        folder.mkdir(parents=True)
    (root / "a" / "file").write_bytes(b"12345")
    (root / "used" / "model.gguf").write_bytes(b"1")
    (root / "a b ").write_bytes(b"1")
    (precious / "keep").write_bytes(b"1")
    (root / "link").symlink_to(precious)
    (root / "inner").symlink_to(root / "a")
    (root / "b" / "link2").symlink_to(precious)
    (tmp_path / "named").symlink_to(root)
    return root


def put_revision(root: Path, commit: str, files: dict[str, str], ref: str = "") -> Path:
    """A snapshot with `files`: name -> blob. Blobs hold their own names."""
    repo = root / "models--org--m"
    snapshot = repo / "snapshots" / commit
    for folder in (snapshot, repo / "blobs", repo / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, blob in files.items():
        (repo / "blobs" / blob).write_text(blob)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    if ref:
        (repo / "refs" / ref).write_text(commit)
    return snapshot


PATHS = [
    ("a", "removed"),
    ("a/", "removed"),
    ("a/file", "removed"),
    ("nothing", "absent"),
    ("nothing/at/all", "absent"),
    ("link", "removed"),
    ("link/keep", "refused"),
    ("inner/file", "refused"),
    ("b/link2", "removed"),
    ("b/link2/keep", "refused"),
    ("b", "removed"),
    (".", "refused"),
    ("./", "refused"),
    ("", "refused"),
    ("/", "refused"),
    ("..", "refused"),
    ("ROOT", "refused"),
    ("ROOT/", "refused"),
    ("ROOT/../precious", "refused"),
    ("ROOT/a", "removed"),
    ("NAMED/a", "removed"),
    ("NAMED", "refused"),
    ("OUTSIDE/precious/keep", "refused"),
    ("OUTSIDE", "refused"),
    ("a/../../precious/keep", "refused"),
    ("a/file/further", "refused"),
    ("a ", "absent"),
    ("a b ", "removed"),
    ("a\0b", "refused"),
    ("used", "refused"),
    ("used/model.gguf", "refused"),
    (".llmgw", "refused"),
    (".llmgw/trash", "refused"),
    ("hf://org/none", "absent"),
    ("file:///", "refused"),
    ("x" * 300, "refused"),
]


@pytest.mark.parametrize(("path", "outcome"), PATHS)
def test_weights_are_removed_below_the_root_only_and_never_what_is_used(root: Path, path: str, outcome: str) -> None:
    outside = root.parent
    path = path.replace("ROOT", str(root)).replace("NAMED", str(outside / "named")).replace("OUTSIDE", str(outside))
    used = {root / "used" / "model.gguf": "m-1"}
    before = sorted(outside.rglob("*"))
    dry = remove_weights(RemoveWeights(paths=(path,), dry_run=True), root, used)
    assert dry.paths[0].outcome == ("would_remove" if outcome == "removed" else outcome)
    assert sorted(outside.rglob("*")) == before
    done = remove_weights(RemoveWeights(paths=(path,)), root, used)
    assert done.paths[0].outcome == outcome
    assert done.paths[0].freed_bytes == dry.paths[0].freed_bytes
    assert done.outcome is (Outcome.REFUSED if outcome == "refused" else Outcome.ACCEPTED)
    if outcome == "refused":
        assert done.paths[0].message
    if outcome != "removed":
        assert [path for path in sorted(outside.rglob("*")) if ".llmgw" not in str(path)] == before
    assert (outside / "precious" / "keep").exists()
    assert (root / "used" / "model.gguf").exists()


def test_a_path_that_becomes_a_link_after_it_was_looked_at_is_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look at the entry is the one that counts: what was slipped in is put back, and its target untouched."""

    def swap(places: tuple[Path, ...]) -> int:
        (root / "a").rename(root / "elsewhere")
        (root / "a").symlink_to(root.parent / "precious")
        return freed_bytes(places)

    monkeypatch.setattr(removal, "freed_bytes", swap)
    done = remove_weights(RemoveWeights(paths=("a",)), root, {})
    assert (done.paths[0].outcome, "replaced" in done.paths[0].message) == ("refused", True)
    assert (root / "a").is_symlink()
    assert (root.parent / "precious" / "keep").exists()


def test_a_folder_on_the_way_that_becomes_a_link_leads_nowhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "b" / "keep").write_bytes(b"own")

    def swap(places: tuple[Path, ...]) -> int:
        (root / "b").rename(root / "elsewhere")
        (root / "b").symlink_to(root.parent / "precious")
        return freed_bytes(places)

    monkeypatch.setattr(removal, "freed_bytes", swap)
    done = remove_weights(RemoveWeights(paths=("b/keep",)), root, {})
    assert done.paths[0].outcome == "removed"  # of the folder that was looked at
    assert not (root / "elsewhere" / "keep").exists()
    assert (root.parent / "precious" / "keep").exists()


@pytest.mark.parametrize("path", ["mounted", "over", "mounted/below"])
def test_what_is_mounted_is_not_the_roots(root: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "over" / "mounted").mkdir(parents=True)
    (root / "mounted" / "below").mkdir(parents=True)
    monkeypatch.setattr(removal, "mounts", lambda: [Path("/"), root, root / "mounted", root / "over" / "mounted"])
    done = remove_weights(RemoveWeights(paths=(path, "a")), root, {})
    assert [one.outcome for one in done.paths] == ["refused", "removed"]
    assert "mounted" in done.paths[0].message


def test_blobs_go_with_the_last_revision_that_links_to_them(root: Path) -> None:
    first = put_revision(root, COMMIT, {"config.json": "shared", "m.safetensors": "one"}, ref="main")
    second = put_revision(root, OTHER, {"config.json": "shared", "m.safetensors": "two"}, ref="v2")
    repo = root / "models--org--m"
    path = str(second.relative_to(root))
    done = remove_weights(RemoveWeights(paths=(path, path)), root, {})
    assert [(one.outcome, one.freed_bytes) for one in done.paths] == [("removed", len("two"))]
    assert sorted(blob.name for blob in (repo / "blobs").iterdir()) == ["one", "shared"]
    assert [ref.name for ref in (repo / "refs").iterdir()] == ["main"]
    assert (first / "config.json").read_text() == "shared"
    done = remove_weights(RemoveWeights(paths=("hf://org/m",)), root, {})
    assert done.paths[0].freed_bytes == len("one") + len("shared")
    assert not repo.exists()


def test_one_file_of_a_revision_takes_its_own_blob_along(root: Path) -> None:
    snapshot = put_revision(root, COMMIT, {"a.gguf": "one", "b.gguf": "two", "c.gguf": "two"}, ref="main")
    for name, left in (("a.gguf", ["two"]), ("b.gguf", ["two"]), ("c.gguf", [])):
        remove_weights(RemoveWeights(paths=(f"hf://org/m/{name}",)), root, {})
        assert sorted(blob.name for blob in (root / "models--org--m" / "blobs").glob("*")) == left
        assert not (snapshot / name).is_symlink()


@pytest.mark.parametrize(
    "path",
    [
        "models--org--m",
        f"models--org--m/snapshots/{COMMIT}",
        f"models--org--m/snapshots/{COMMIT}/m.gguf",
        "models--org--m/blobs/one",
        "models--org--m/refs/main",
        "models--org--m/blobs",
    ],
)
def test_nothing_of_a_revision_in_use_is_removed_by_whatever_name(root: Path, path: str) -> None:
    put_revision(root, COMMIT, {"m.gguf": "one"}, ref="main")
    launches = (
        LaunchSpec(engine="x", argv=("x",), served_name="m", weights="hf://org/m/m.gguf"),
        LaunchSpec(engine="x", argv=("x", f"--model={root}/models--org--m/snapshots/{COMMIT}/m.gguf"), served_name="m"),
        LaunchSpec(engine="x", argv=("x",), env={"M": f"{root}/models--org--m/snapshots/{COMMIT}"}, served_name="m"),
    )
    for launch in launches[: 1 if "refs" in path else 3]:
        used = dict.fromkeys(places_used(launch, root), "m-1")
        done = remove_weights(RemoveWeights(paths=(path,)), root, used)
        assert done.refusal is not None
        assert done.refusal.code is RefusalCode.IN_USE
        assert "m-1" in done.paths[0].message


def test_while_a_revision_is_not_known_its_whole_repository_is_in_use(root: Path) -> None:
    put_revision(root, COMMIT, {"m.gguf": "one"}, ref="main")
    used = dict.fromkeys(places_of("hf://org/m@v9", root), "model m")
    done = remove_weights(RemoveWeights(paths=(f"models--org--m/snapshots/{COMMIT}",)), root, used)
    assert done.paths[0].outcome == "refused"


def test_bytes_of_a_file_with_several_names_are_freed_by_the_last(root: Path) -> None:
    os.link(root / "a" / "file", root / "b" / "file")
    assert remove_weights(RemoveWeights(paths=("a",)), root, {}).paths[0].freed_bytes == 0
    assert remove_weights(RemoveWeights(paths=("b",)), root, {}).paths[0].freed_bytes == 5


def test_what_an_earlier_agent_could_not_delete_is_deleted_by_the_next(root: Path) -> None:
    for name, content in model().items():
        place = root / ".llmgw" / "trash" / "x" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    empty_trash(root)
    assert list((root / ".llmgw" / "trash").iterdir()) == []


def test_a_node_without_a_root_removes_nothing() -> None:
    done = remove_weights(RemoveWeights(paths=("a",)), None, {})
    assert done.refusal is not None
    assert "--weights-root" in done.refusal.message
