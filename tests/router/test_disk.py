"""Tables on disk: safe names, whole files, and what cannot be understood is kept for a person."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.table import build
from router.disk import Disk, InUseError, SetAside, file_name

from .rig import endpoint, model, table, token

FLEETS = st.text(min_size=1, max_size=64)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with closing(Disk(tmp_path)) as held:
        yield held


SOUND = build((model("m"),), (endpoint("m-1"),))


@given(FLEETS, FLEETS)
def test_file_names_stay_in_their_directory_and_apart(one: str, two: str) -> None:
    name = file_name(one)
    assert Path("/state", name).resolve().parent == Path("/state")
    assert not name.startswith(".")
    assert len(name) <= 255
    assert name.isascii()
    assert (name == file_name(two)) == (one == two)


def test_what_was_written_is_read_again(disk: Disk, tmp_path: Path) -> None:
    disk.write(token(3, fleet="../x"), SOUND)
    disk.write(token(4, fleet="../x"), SOUND)
    assert list(disk.read()) == [(token(4, fleet="../x"), SOUND)]
    assert {path.name for path in tmp_path.iterdir()} == {".lock", file_name("../x")}


def test_a_second_router_may_not_use_the_same_directory(tmp_path: Path) -> None:
    with closing(Disk(tmp_path)), pytest.raises(InUseError, match="give each router its own"):
        Disk(tmp_path)
    Disk(tmp_path).close()


def test_a_removed_directory_is_made_again_and_held_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with closing(Disk(folder)) as disk:
        disk.write(token(3), SOUND)
        assert not disk.is_lost()
        shutil.rmtree(folder)
        assert disk.is_lost()
        disk.make_anew()
        assert not disk.is_lost()
        with pytest.raises(InUseError):
            Disk(folder)
        disk.write(token(4), SOUND)
        assert list(disk.read()) == [(token(4), SOUND)]


def test_a_directory_that_another_router_took_is_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with closing(Disk(folder)) as disk:
        folder.rename(tmp_path / "moved")
        with closing(Disk(folder)):
            assert disk.is_lost()
            with pytest.raises(OSError, match="in use by another router"):
                disk.make_anew()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no JSON"),
        (b'{"token":', "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"{}", "token is missing"),
        (table(1, (model("m"),)).model_dump_json().replace('"m"', '"n"').encode(), "has digest"),
        (table(1, (model("m"),), fleet="other").model_dump_json().encode(), "holds fleet 'other'"),
        (table(1, (), (endpoint("m-1"),)).model_dump_json().encode(), "names model 'm'"),
    ],
)
def test_a_file_that_cannot_be_understood_is_set_aside(disk: Disk, tmp_path: Path, content: bytes, reason: str) -> None:
    disk.write(token(1, fleet="sound"), SOUND)
    for number in (1, 2):
        (tmp_path / "f.json").write_bytes(content)
        aside, sound = disk.read()
        assert isinstance(aside, SetAside)
        assert aside.path == tmp_path / f"f.json.corrupt-{number}"
        assert aside.path.read_bytes() == content
        assert reason in aside.reason
        assert sound == (token(1, fleet="sound"), SOUND)
