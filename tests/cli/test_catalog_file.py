"""Reading YAML and JSON: no guesses, positions for everything, and a problem where there is no single document."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli import yaml_text
from cli.catalog_file import MAX_BYTES, UnreadableError, parse, read
from llmgw.problems import Problem
from llmgw.validation import check

from ..core.catalogs import raw_catalogs
from ..core.strategies import json_values

TEXT = """\
# a fleet
models:
  - name: a
    aliases: [x, y]
  - name: b
    profiles: &p
      - {name: p, engine: stub}
  - name: c
    profiles: *p
"""


def unreadable(text: str, *, is_json: bool = False) -> tuple[Problem, ...]:
    with pytest.raises(UnreadableError) as caught:
        parse(text, is_json=is_json)
    return caught.value.problems


def value(text: str) -> object:
    raw = parse(f"a: {text}", is_json=False).raw
    assert isinstance(raw, dict)
    return raw["a"]


def test_every_part_has_its_position() -> None:
    source = parse(TEXT, is_json=False)
    assert source.raw == {
        "models": [
            {"name": "a", "aliases": ["x", "y"]},
            {"name": "b", "profiles": [{"name": "p", "engine": "stub"}]},
            {"name": "c", "profiles": [{"name": "p", "engine": "stub"}]},
        ]
    }
    assert source.lines["models",] == (2, 1)
    assert source.lines["models", 0, "name"] == (3, 5)
    assert source.lines["models", 0, "aliases", 1] == (4, 18)
    assert source.lines["models", 2, "profiles"] == (9, 5)
    assert source.lines["models", 2, "profiles", 0, "engine"] == (7, 19)


def test_a_problem_of_a_catalog_names_the_line() -> None:
    source = parse(TEXT.replace("aliases: [x, y]", "aliases: [x, b]"), is_json=False)
    told = [str(problem) for problem in check(source.raw, source.lines).problems]
    assert told == [
        "models[0].profiles (line 3, column 5): `profiles` is missing; add `profiles`",
        'models[1].name (line 5, column 5): the name "b" of model "b" is also an alias of model "a" '
        "(models[0].aliases[1], line 4); a name belongs to one model: keep it in one of the two",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("<<", "<<"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("-17", -17),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("[x, ]", ["x"]),
        ('"a\\tb"', "a\tb"),
    ],
)
def test_plain_words_follow_yaml_1_2(written: str, meant: object) -> None:
    got = value(written)
    assert got == meant
    assert type(got) is type(meant)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "already given in line 1"),
        ("a: {b: 1,\n  b: 2}", 2, "already given in line 1"),
        ("a:\n\t- b", 2, "not tabs"),
        ("a: [1, 2", 1, "not YAML"),
        ("a: b: c", 1, "quotes"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: @x", 1, "not YAML"),
        ("a: *x", 1, "not YAML"),
        ("a: 007", 1, "octal"),
        ("a: 1" + "0" * 50, 1, "too many digits"),
        ("a: !!int x", 1, "no number"),
        ("a: !!bool 1", 1, "neither true nor false"),
        ("a: !!python/object:os.system x", 1, "means nothing here"),
        ("a: !!binary aGk=", 1, "means nothing here"),
        ("a: !!set {b}", 1, "means nothing here"),
        ("a: !secret b", 1, "means nothing here"),
        ("? [a]\n: b", 1, "a key must be text"),
        ("a: {{ .Values.x }}", 1, "filled in"),
        ("# {{ x }}\nname: x\n{% if y %}\n", 3, "fill it in first"),
        ("a: &x [*x]", 1, "inside itself"),
        ("a: &x {<<: *x}", 1, "merges other mappings"),
        ("a: {<<: [1]}", 1, "merges other mappings"),
        ("a: é\nb: \x00", 2, "U+0000 is not allowed"),
        ("a: \ud800", 1, "U+D800 is not allowed"),
        ("{{ range .x }}\n- a", 2, "template"),
    ],
)
def test_what_is_no_plain_document_is_a_problem_with_its_line(text: str, line: int, words: str) -> None:
    problem = unreadable(text)[0]
    assert words in f"{problem.what}; {problem.mend}"
    assert problem.line is not None
    # libyaml tells the end of the text where the pure parser tells the last line
    assert problem.line == line or "[1, 2" in text


@pytest.mark.parametrize("word", ["on", "no", "y", "1", "2020-01-01", "null", "~"])
def test_a_key_is_the_text_that_is_written(word: str) -> None:
    source = parse(f"{word}: x\n", is_json=False)
    assert source.raw == {word: "x"}
    assert (word,) in source.lines


def test_all_double_keys_are_told_at_once() -> None:
    assert [problem.path for problem in unreadable("a: 1\na: 2\nb: {c: 1, c: 2}")] == ["a", "b.c"]
    assert [problem.path for problem in unreadable('{"a": 1, "a": 2,\n"b": {"c": 1, "c": 2}}', is_json=True)] == [
        "a",
        "b.c",
    ]


def test_merge_keys_are_spread_and_own_keys_win() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\n"
    raw = parse(text, is_json=False).raw
    assert isinstance(raw, dict)
    assert raw["c"] == {"z": 3, "x": 1, "y": 1}


def test_anchors_that_multiply_each_other_end_early() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9))
    assert "multiply" in unreadable(bomb)[0].mend


@pytest.mark.parametrize(("text", "is_json"), [("[" * 100_000, False), ("[" * 100_000, True), ("- " * 5000, False)])
def test_any_depth_is_a_problem_and_not_a_crash(text: str, is_json: bool) -> None:
    assert unreadable(text, is_json=is_json)


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n"])
def test_an_empty_file_says_so(text: str) -> None:
    assert unreadable(text)[0].what == "the file is empty"


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{"a": 1,\n "a": 2}', 2, 2, "already given in line 1"),
        ('{"a": [1,\n]}', 2, 1, "no value begins here"),
        ('{"a": 1,}', 1, 9, "a key in double quotes"),
        ('{"a": NaN}', 1, 7, "no value begins here"),
        ('{"a": tru}', 1, 7, "no value begins here"),
        ("{'a': 1}", 1, 2, "a key in double quotes"),
        ('{"a": 01}', 1, 7, "no value begins here"),
        ('{"a": "b\n"}', 1, 9, "control character"),
        ('{"a": "\\x"}', 1, 8, "escape"),
        ('{"a": "b', 1, 7, "string"),
        ('{"a" 1}', 1, 6, "colon"),
        ("[1 2]", 1, 4, "comma"),
        ('{"a": 1} x', 1, 10, "after the end"),
        ("{", 1, 2, "key"),
        ("// x\n{}", 1, 1, "no value"),
    ],
)
def test_what_is_no_json_is_a_problem_with_its_place(text: str, line: int, column: int, words: str) -> None:
    problem = unreadable(text, is_json=True)[0]
    assert words in f"{problem.what}; {problem.mend}".casefold()
    assert (problem.line, problem.column) == (line, column)


@given(json_values())
def test_json_reads_as_the_standard_library_reads_it(sent: object) -> None:
    text = json.dumps(sent, indent=1)
    if "NaN" in text or "Infinity" in text:
        return
    assert parse(text, is_json=True).raw == json.loads(text)


class _Quoting(yaml.SafeDumper):
    """Quotes every string: PyYAML writes for YAML 1.1, where `0E0` is a string; we read YAML 1.2, where it is none."""


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(raw_catalogs())
def test_yaml_and_json_of_a_catalog_read_the_same(raw: dict[str, object]) -> None:
    as_json, as_yaml = json.dumps(raw, indent=2), yaml.dump(raw, Dumper=_Quoting, sort_keys=False)
    assert parse(as_yaml, is_json=False).raw == parse(as_json, is_json=True).raw == raw


@given(raw_catalogs())
def test_json_has_the_same_positions_read_as_either(raw: dict[str, object]) -> None:
    text = json.dumps(raw, indent=2, ensure_ascii=False)
    if all(char.isprintable() or char == "\n" for char in text):  # YAML wants others escaped its own way
        assert parse(text, is_json=True).lines == parse(text, is_json=False).lines


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_read_or_refused(text: str, is_json: bool) -> None:
    lines, problems = _outcome(text, is_json)
    assert (() in lines) != bool(problems)
    assert all(problem.what and "\n" not in str(problem) for problem in problems)


def _outcome(text: str, is_json: bool) -> tuple[Collection[object], tuple[Problem, ...]]:
    try:
        return parse(text, is_json=is_json).lines, ()
    except UnreadableError as error:
        return (), error.problems


def test_the_slower_parser_of_yaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = parse(TEXT, is_json=False)

    class Slow(yaml.SafeLoader):
        yaml_implicit_resolvers = yaml_text._CoreLoader.yaml_implicit_resolvers

    monkeypatch.setattr(yaml_text, "_CoreLoader", Slow)
    assert parse(TEXT, is_json=False) == fast
    assert unreadable("a:\n\t- b")[0].line == 2


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"), [("c.json", '{"a":\t1}'), ("c.JSON", '{"a": 1}'), ("c.yaml", "a: 1"), ("c", "a: 1")]
)
def test_the_name_of_a_file_says_what_it_is(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(path).raw == {"a": 1}


def test_standard_input_is_json_when_it_begins_with_a_brace() -> None:
    assert parse('\n{"a":\t1}').raw == parse("a: 1").raw == {"a": 1}
    with pytest.raises(UnreadableError, match="template"):
        parse("{{ range .x }}\n- a\n")


def test_a_file_that_is_no_text_says_where(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(UnreadableError) as caught:
        read(path)
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (2, 4)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UnreadableError, match="larger than 4 MiB"):
        read(path)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        read(tmp_path / "none.yaml")


# --- a file that was cut ---------------------------------------------------------------------------------------------

WHOLE = """\
nodes:
  - {id: n0, url: "http://n0"}
models:
  - name: org/Qwen3:30B
    aliases: [模型, small]
    replicas: {min: 0, max: 2}
    profiles:
      - name: p
        engine: stub
        accelerators: [{count: 1, memory: 80GB}]
  - name: second
    profiles: [{name: p, engine: stub}]
"""


@pytest.mark.parametrize("is_json", [False, True])
def test_a_catalog_cut_anywhere_says_where_it_breaks_off_or_is_what_is_left(is_json: bool) -> None:
    text = json.dumps(parse(WHOLE, is_json=False).raw) if is_json else WHOLE
    names = {"org/Qwen3:30B", "second"}
    for length in range(len(text)):
        problems, raw = _told(text[:length], is_json=is_json)
        checked = check(raw) if not problems else None
        told = problems or (checked.problems if checked is not None else ())
        assert all(problem.what for problem in told), length
        if checked is None or checked.catalog is None:
            assert told, length
            continue
        assert not is_json, "what breaks off is no JSON"
        assert {m.name for m in checked.catalog.models} <= names | {n[:k] for n in names for k in range(len(n))}


def _told(text: str, *, is_json: bool) -> tuple[tuple[Problem, ...], object]:
    """What is wrong with a text, and what it says."""
    try:
        return (), parse(text, is_json=is_json).raw
    except UnreadableError as broken:
        return broken.problems, None
