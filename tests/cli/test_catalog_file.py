"""Reading catalog files: a text that is no single document is refused with positions; what is read has them too."""

from pathlib import Path

import pytest

from cli.catalog_file import UnreadableError, parse, read

# The text, the line of each problem (None: of no line), words of the first.
UNREADABLE: dict[str, tuple[str, list[int | None], str]] = {
    "empty": ("", [None], "empty"),
    "a key twice": ("a: 1\nb: 2\na: 3\n", [3], "line 1"),
    "two keys twice, in two depths": ("a: {b: 1, b: 2}\nc: 1\nc: 2\n", [1, 3], "line 1"),
    "a key twice in JSON": ('{"a": 1,\n "a": 2}', [2], "line 1"),
    "a tab": ("models:\n\t- name: a\n", [2], "'\\t'"),
    "a template's value": ("models:\n  - name: {{ .Values.x }}\n", [2], "template"),
    "a template's line": ("{{ range .x }}\n- a\n", [2], "template"),
    "an open bracket": ("a: [1", [1], ""),
    "a second document": ("a: 1\n---\nb: 2\n", [2], "document"),
    "an object": ("a: !!python/object:os.x {}\n", [1], "tag"),
    "an anchor inside itself": ("a: &x [*x]\n", [None], ""),
    "NUL": ("a: 1\nb: \x00\n", [2], "U+0000"),
    "brackets without end": ("a: " + "[" * 3000, [None], ""),
    "a day that never was": ("a: 2020-99-99\n", [None], ""),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_text_that_is_no_document_is_refused_with_its_lines(case: str) -> None:
    text, lines, words = UNREADABLE[case]
    with pytest.raises(UnreadableError) as refused:
        parse(text)
    problems = refused.value.problems
    assert [p.line for p in problems] == lines
    assert words in str(refused.value)
    assert all(p.mend for p in problems)


def test_anchors_that_multiply_each_other_end_early() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(UnreadableError, match="multiply"):
        parse("\n".join(rows))


def test_every_part_has_its_position() -> None:
    source = parse("models:\n  - name: a\n    aliases: [b, c]\n")
    assert source.raw == {"models": [{"name": "a", "aliases": ["b", "c"]}]}
    places = {at: tuple(position) for at, position in source.lines.items()}
    assert places["models",] == (1, 1)
    assert places["models", 0, "name"] == (2, 5)
    assert places["models", 0, "aliases", 1] == (3, 18)


@pytest.mark.parametrize("word", ["on", "no", "y", "1", "2020-01-01", "null", "~"])
def test_a_key_is_the_text_that_is_written(word: str) -> None:
    source = parse(f"{word}: x\n")
    assert source.raw == {word: "x"}
    assert (word,) in source.lines


def test_a_merge_key_brings_its_fields_once() -> None:
    source = parse("base: &b {x: 1, y: 2}\na:\n  <<: *b\n  y: 3\n")
    assert source.raw == {"base": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}}


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(UnreadableError, match="UTF-8"):
        read(file)
    monkeypatch.setattr("cli.catalog_file.MAX_BYTES", 3)
    with pytest.raises(UnreadableError, match="larger"):
        read(file)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.yaml")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"models": []}')
    assert read(file).raw == {"models": []}
