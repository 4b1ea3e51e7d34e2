"""Whether weights are whole: indexes, shards, headers, links and the lists of pulls; and what is told of a root."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.weights.finding import argument
from agent.weights.listing import list_weights
from agent.weights.presence import look, shards_of
from llmgw.wire import LaunchSpec, Refusal
from tests.agent.hub_server import COMMIT, OTHER, model, tensors

SHARD = "model-00002-of-00002.safetensors"


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def cut(folder: Path) -> None:
    place = folder / SHARD
    place.write_bytes(place.read_bytes()[:-1])


def dangle(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to("../../blobs/gone")


def drop_index(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / "model.safetensors.index.json").unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda folder: None, ""),
    "a shard of the index": (lambda folder: (folder / SHARD).unlink(), f"{SHARD} is missing"),
    "a shard cut short": (cut, "bytes"),
    "a header cut short": (lambda folder: (folder / SHARD).write_bytes(b"\xff\x00"), "bytes"),
    "a link into nothing": (dangle, f"{SHARD} is missing"),
    "a shard that no index names": (
        drop_index,
        f"{SHARD} is missing",
    ),
    "an index of the second choice": (
        lambda folder: (folder / "pytorch_model.bin.index.json").write_bytes(b'{"weight_map": {"a": "no.bin"}}'),
        "",
    ),
    "an index that is none": (lambda folder: (folder / "model.safetensors.index.json").write_bytes(b"[1"), ""),
    "a shard of a subfolder": (
        lambda folder: put(folder, {"unet/x.safetensors.index.json": b'{"weight_map": {"a": "y.safetensors"}}'}),
        "unet/y.safetensors is missing",
    ),
    "a further download": (lambda folder: put(folder, {"other.incomplete": b"1"}), ""),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_missing_or_short_is_found_and_named(tmp_path: Path, name: str) -> None:
    damage, told = DAMAGE[name]
    folder = put(tmp_path / "m", model())
    damage(folder)
    presence = look(folder)
    assert presence.complete == (not told)
    assert told in presence.why


def test_sizes_are_held_against_the_list_of_a_pull(tmp_path: Path) -> None:
    folder = put(tmp_path / "m", {"m.bin": b"1234", "config.json": b"{}"})
    assert look(folder, {"m.bin": 4}).complete
    assert look(folder, {"m.bin": 5}).why == "m.bin has 4 of 5 bytes"
    assert look(folder, {"m.bin": 4, "tokenizer.json": 2}).why == "tokenizer.json is missing"


def test_a_file_that_counts_shards_wants_them_all(tmp_path: Path) -> None:
    first, second = shards_of("m-00001-of-00002.gguf")
    put(tmp_path, {first: b"12"})
    assert look(tmp_path / first).why == f"{second} is missing"
    put(tmp_path, {second: b"3"})
    assert (look(tmp_path / first).complete, look(tmp_path / first).bytes) == (True, 3)


@pytest.mark.parametrize("name", ["m-00001-of-00000.gguf", "m-1-of-2.gguf", "m.gguf", "", "-00001-of-99999.gguf"])
def test_other_names_count_nothing(name: str) -> None:
    assert shards_of(name) == ()


def hub_revision(root: Path, files: dict[str, bytes], commit: str = COMMIT, ref: str = "main") -> None:
    repo = root / "models--org--m"
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for number, (name, content) in enumerate(files.items()):
        put(repo / "blobs", {f"{commit[:4]}{number}": content})
        (snapshot / name).symlink_to(f"../../blobs/{commit[:4]}{number}")
    if ref:
        put(repo / "refs", {ref: commit.encode()})


def test_a_root_is_listed_by_source_with_path_bytes_and_what_lacks(tmp_path: Path) -> None:
    root = tmp_path / "w"
    files = model()
    hub_revision(root, files)
    hub_revision(root, {name: content for name, content in files.items() if name != SHARD}, OTHER, "v2")
    put(root / "models--org--half" / "blobs", {"abc.incomplete": b"12"})
    put(
        root, {"one.gguf": b"123", "deep/er/m.safetensors": tensors(5), "deep/er/config.json": b"{}", "notes.txt": b"x"}
    )
    put(root / ".llmgw" / "trash", {"x.gguf": b"1"})
    rows = {row.source: row for row in list_weights(root)}
    assert set(rows) == {
        "hf://org/m",
        "hf://org/m@v2",
        "hf://org/half",
        f"file://{root}/one.gguf",
        f"file://{root}/deep/er",
    }
    main = rows["hf://org/m"]
    whole = sum(map(len, files.values()))
    assert (main.complete, main.bytes, main.path) == (True, whole, f"models--org--m/snapshots/{COMMIT}")
    assert (rows["hf://org/m@v2"].complete, rows["hf://org/m@v2"].reason) == (False, f"{SHARD} is missing")
    assert (rows["hf://org/half"].complete, rows["hf://org/half"].bytes) == (False, 2)
    assert rows[f"file://{root}/one.gguf"].bytes == 3


def test_a_root_may_be_an_hf_home(tmp_path: Path) -> None:
    hub_revision(tmp_path / "hub", model())
    assert [(row.source, row.complete) for row in list_weights(tmp_path)] == [("hf://org/m", True)]


def launch(weights: str, *argv: str) -> LaunchSpec:
    return LaunchSpec(engine="x", argv=("x", *argv), served_name="m", weights=weights)


def test_an_engine_is_told_the_path_of_what_is_whole_and_the_name_of_what_it_fetches_itself(tmp_path: Path) -> None:
    hub_revision(tmp_path, model())
    whole = str(tmp_path / "models--org--m" / "snapshots" / COMMIT)
    assert argument(launch("hf://org/m", "${llmgw:weights}"), tmp_path) == whole
    assert argument(launch(f"hf://org/m@{COMMIT}", "${llmgw:weights}"), tmp_path) == whole
    assert argument(launch("hf://org/m", "${llmgw:weights}"), None) == "org/m"
    assert argument(launch("hf://org/m@v9", "${llmgw:weights}"), tmp_path) == "org/m"
    assert argument(launch("hf://org/m/x.gguf", "-hf", "org/m"), tmp_path) == "org/m"
    for text in ("hf://org/m/x.gguf", "https://host/x.gguf", f"file://{tmp_path}/none", "s3://b/k", "hf://../x"):
        assert isinstance(argument(launch(text, "${llmgw:weights}"), tmp_path), Refusal), text
    folder = put(tmp_path / "own", model())
    assert argument(launch(f"file://{folder}", "${llmgw:weights}"), tmp_path) == str(folder)
    (folder / SHARD).unlink()
    lacks = argument(launch(f"file://{folder}", "${llmgw:weights}"), None)
    assert isinstance(lacks, Refusal)
    assert SHARD in lacks.message
