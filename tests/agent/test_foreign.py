"""Documents of others may be anything: none of them breaks the agent."""

from pathlib import Path

import pytest

from agent.foreign import foreign_json
from agent.readiness import listed_models
from agent.weights import presence

DEEP = b"[" * 100_000


@pytest.mark.parametrize("text", [DEEP, b'{"a":' * 100_000, b"", b"{", b"\xff\xfe\x00", b"9" * 5000, "\ud800"])
def test_what_is_no_document_is_a_value_error(text: bytes | str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        foreign_json(text)


def test_a_list_of_models_nested_too_deep_lists_none() -> None:
    assert listed_models(DEEP) == []
    assert listed_models(b'{"data": [{"id": "m"}]}') == ["m"]


@pytest.mark.parametrize("header", [DEEP, b'{"t": {"data_offsets": ["a", "b"]}}', b'{"t": 7}', b"[]", b"17"])
def test_a_header_of_weights_that_is_none_leaves_their_size_unknown(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert presence._told_bytes(file) is None


def test_an_index_nested_too_deep_names_no_files(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors.index.json"
    file.write_bytes(DEEP)
    assert presence._read_index(str(file), 0, len(DEEP)) == ()
