"""YAML into JSON types with positions. It never guesses a type.

Plain words follow YAML 1.2's core schema, where only `true`, `false`, `null` and numbers are no text: a model may be
called `no`, and `12:30` is not 750. Anchors and merge keys are spread; dates, sets, binary and objects are refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import yaml

from cli.source import Reading, Source, syntax_error
from llmgw.problems import Path, Position, quoted

T = TypeVar("T")

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_NOT_ALLOWED = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML 1.2 does not let stand in a document; looked for here, since libyaml counts it in bytes."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is there: twenty times as fast

CORE_WORDS = (
    ("null", "~|null|Null|NULL", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
)


class _CoreLoader(_LOADER):  # type: ignore[misc] # which of the two loaders is known only at run time
    """A loader that only composes nodes, with the core schema's plain words."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own interface


_PATTERNS = {kind: re.compile(rf"(?:{pattern})\Z") for kind, pattern, _ in CORE_WORDS}
for _kind, _, _first in CORE_WORDS:
    _CoreLoader.add_implicit_resolver(_TAG + _kind, _PATTERNS[_kind], list(_first))
_CoreLoader.yaml_implicit_resolvers[""] = [(_TAG + "null", re.compile(r"\Z"))]  # nothing written is null


def parse(text: str) -> Source:
    """The one document in `text`. Raises UnreadableError with positions, never another error."""
    node = _compose(text)
    reading = Reading()
    return reading.done(_value(node, (), _position(node.start_mark), reading))


def parse_documents(text: str, reading: Reading) -> object:
    """Every document in `text`: the one, or a list of several. Raises UnreadableError where it cannot be read on.

    Problems that do not keep it from reading on stay with `reading`.
    """
    nodes = [node for node in _composed(text, _every_node) if node.tag != _TAG + "null"]
    if len(nodes) == 1:
        return _value(nodes[0], (), _position(nodes[0].start_mark), reading)
    reading.enter((), Position(1, 1))
    return [_value(node, (i,), _position(node.start_mark), reading) for i, node in enumerate(nodes)]


def _every_node(loader: Any) -> list[yaml.Node]:
    found = []
    while loader.check_node():
        found.append(loader.get_node())
    return found


def _compose(text: str) -> yaml.Node:
    node: yaml.Node | None = _composed(text, _single_node)
    if node is None:
        raise syntax_error("the file is empty", "begin with `models:`", None)
    return node


def _single_node(loader: Any) -> yaml.Node | None:
    found: yaml.Node | None = loader.get_single_node()
    return found


def _composed(text: str, compose: Callable[[Any], T]) -> T:
    if (bad := _NOT_ALLOWED.search(text)) is not None:
        raise syntax_error(
            f"the character U+{ord(bad[0]):04X} is not allowed", "take it out", _place(text, bad.start())
        )
    try:
        loader = _CoreLoader(text)
        try:
            return compose(loader)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        what = " ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        raise syntax_error(*_explained(what, text), _position(mark) if mark else None) from error
    except RecursionError as error:
        raise syntax_error("nested too deeply", "a catalog is flat", None) from error


def _explained(what: str, text: str) -> tuple[str, str]:
    """PyYAML's words and a mend for the usual mistakes."""
    if "expected a single document" in what:
        return "there is a second document", "one file holds one catalog: remove the `---`"
    if "{{" in text or "{%" in text:
        return f"not YAML: {what}", "this looks like a template: fill it in first"
    if "'\\t'" in what or "cannot start any token" in what:
        return f"not YAML: {what}", "indent with blanks, not tabs; put text with special characters in quotes"
    return f"not YAML: {what}", "mend the YAML there; text with `: ` or ` #` in it needs quotes"


def _position(mark: yaml.Mark) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _place(text: str, index: int) -> Position:
    before = text[:index]
    return Position(before.count("\n") + 1, len(before) - before.rfind("\n"))


# --- nodes into values ---------------------------------------------------------------------------------------------


def _value(node: yaml.Node, at: Path, position: Position, reading: Reading) -> object:
    """`position` is the one to remember: the node's own, or its key's."""
    reading.enter(at, position)
    if isinstance(node, yaml.MappingNode):
        _only(node, "map", at, reading)
        return _mapping(node, at, reading, frozenset())
    if isinstance(node, yaml.SequenceNode):
        _only(node, "seq", at, reading)
        return [_value(item, (*at, i), _position(item.start_mark), reading) for i, item in enumerate(node.value)]
    return _scalar(node, at, reading)


def _only(node: yaml.Node, kind: str, at: Path, reading: Reading) -> None:
    if node.tag != _TAG + kind:
        reading.complain(at, f"the tag {_short(node.tag)} means nothing here", "remove it", _position(node.start_mark))


def _mapping(node: yaml.MappingNode, at: Path, reading: Reading, outer: frozenset[int]) -> dict[str, object]:
    """Own keys first, then what is merged in and not among them. `outer`: mappings that this one is merged into."""
    merged = _merged(node, at, reading, outer | {id(node)})
    own: dict[str, object] = {}
    first: dict[str, Position] = {}
    for key, value in node.value:
        if key.tag == _MERGE:
            continue
        position = _position(key.start_mark)
        name = _key(key, at, reading)
        if name in first:
            reading.repeated((*at, name), first[name], position)
        first.setdefault(name, position)
        own[name] = _value(value, (*at, name), position, reading)
    return own | {name: value for name, value in merged.items() if name not in own}


def _merged(node: yaml.MappingNode, at: Path, reading: Reading, outer: frozenset[int]) -> dict[str, object]:
    """What `<<` brings; of several mappings the first wins."""
    found: dict[str, object] = {}
    for source in reversed([*_merge_sources(node)]):
        if isinstance(source, yaml.MappingNode) and id(source) not in outer:
            found |= _mapping(source, at, reading, outer)
        else:
            reading.complain(
                at, "`<<` merges other mappings only", "give it the anchor of one", _position(source.start_mark)
            )
    return found


def _merge_sources(node: yaml.MappingNode) -> Iterator[yaml.Node]:
    for key, value in node.value:
        if key.tag == _MERGE:
            yield from value.value if isinstance(value, yaml.SequenceNode) else (value,)


def _key(key: yaml.Node, at: Path, reading: Reading) -> str:
    """A name is what is written, quoted or not: `on` is no switch there, and `1` no number."""
    if isinstance(key, yaml.ScalarNode):
        return str(key.value)
    what = "a key must be text, not a list or mapping"
    reading.complain(at, what, "put it in quotes; a template must be filled in first", _position(key.start_mark))
    return ""


# --- plain words ---------------------------------------------------------------------------------------------------

_MAX_DIGITS = 40


def _scalar(node: yaml.Node, at: Path, reading: Reading) -> object:
    read = _SCALARS.get(node.tag)
    if read is None:
        what = f"the tag {_short(node.tag)} means nothing here"
        reading.complain(at, what, "remove it, or put the text in quotes", _position(node.start_mark))
        return None
    try:
        return read(node.value)
    except ValueError as error:
        reading.complain(at, str(error), "put it in quotes if it is text", _position(node.start_mark))
        return None


def _integer(text: str) -> int:
    digits = _number("int", text).lstrip("+-")
    if digits.startswith(("0x", "0o")):
        return int(text, 0)
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError(f"{digits} could be decimal or octal")
    return int(text)


def _real(text: str) -> float:
    return float(_number("float", text).casefold().replace(".inf", "inf").replace(".nan", "nan"))


def _number(kind: str, text: str) -> str:
    """`text`, if it is such a number: an explicit tag can claim anything."""
    if not _PATTERNS[kind].fullmatch(text):
        raise ValueError(f"{quoted(text)} is no number")
    if len(text) > _MAX_DIGITS:
        raise ValueError("the number has too many digits")
    return text


def _switch(text: str) -> bool:
    if text.casefold() not in ("true", "false"):
        raise ValueError(f"{quoted(text)} is neither true nor false")
    return text.casefold() == "true"


_SCALARS: Mapping[str, Callable[[str], object]] = {
    _TAG + "str": str,
    _TAG + "null": lambda _: None,
    _TAG + "bool": _switch,
    _TAG + "int": _integer,
    _TAG + "float": _real,
    _TAG + "merge": str,  # `<<` as a value is text
}


def _short(tag: str) -> str:
    return quoted(tag.replace(_TAG, "!!"))
