"""Command lines as other tools keep them: split into arguments, gathered into options, and the engine they start.

Splits as a POSIX shell would and expands nothing.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


class UnsplittableError(ValueError):
    """A quote is opened and not closed."""


def without_comments(line: str) -> str:
    """`line` without those of its lines that are comments."""
    return "\n".join(text for text in line.splitlines() if not text.lstrip().startswith("#"))


def split(line: str) -> tuple[str, ...]:
    """The arguments of `line`. Lines that are comments are left out, and a backslash joins a line to the next."""
    try:
        return tuple(shlex.split(re.sub(r"\\\r?\n", " ", without_comments(line))))
    except ValueError as error:
        raise UnsplittableError("a quote is opened and not closed") from error


@dataclass(frozen=True, slots=True)
class Option:
    """A flag with the values behind it, or what stands before the first flag (`flag` empty)."""

    flag: str
    values: tuple[str, ...]
    joined: bool = False
    """Written `flag=value`."""

    @property
    def items(self) -> tuple[str, ...]:
        if self.joined:
            return (f"{self.flag}={self.values[0]}", *self.values[1:])
        return (self.flag, *self.values) if self.flag else self.values

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""


_FLAG = re.compile(r"-(?![0-9.])\S*|-")


def options(args: Sequence[str]) -> Iterator[Option]:
    """`args` in order, each flag with the values up to the next one. A negative number is a value."""
    flag, values, joined = "", [], False
    for item in args:
        if not _FLAG.match(item):
            values.append(item)
            continue
        if flag or values:
            yield Option(flag, tuple(values), joined)
        joined = item.startswith("--") and "=" in item
        flag, _, value = item.partition("=") if joined else (item, "", "")
        values = [value] if joined else []
    if flag or values:
        yield Option(flag, tuple(values), joined)


@dataclass(frozen=True, slots=True)
class Started:
    """What a command line starts: an engine of the table with its own arguments, or a command as it stands."""

    engine: str
    args: tuple[str, ...]
    executable: str | None = None
    note: str = ""
    """What is said differently in the catalog."""


def started(argv: Sequence[str]) -> Started:
    """The engine that `argv` starts; `command` when it is none of the table."""
    program = re.split(r"[/\\]", argv[0])[-1] if argv else ""
    own = argv[0] if argv and program != argv[0] else None
    if re.fullmatch(r"llama-server[\w.-]*", program):
        return Started("llama.cpp", tuple(argv[1:]), None if argv[0] == "llama-server" else argv[0])
    if program == "vllm" and [*argv[1:2]] == ["serve"]:
        return Started("vllm", tuple(argv[2:]), own)
    if program == "trtllm-serve" and len(argv) > 1:
        return Started("tensorrt-llm", tuple(argv[2:] if argv[1] == "serve" else argv[1:]), own)
    if program == "text-generation-launcher":
        return Started("tgi", tuple(argv[1:]), own)
    if re.fullmatch(r"python[\d.]*", program) and [*argv[1:2]] == ["-m"] and len(argv) > 2:
        return _module(argv[2], tuple(argv[3:]), argv[0]) or Started("command", tuple(argv))
    return Started("command", tuple(argv))


def _module(module: str, args: tuple[str, ...], python: str) -> Started | None:
    match module:
        case "vllm.entrypoints.openai.api_server":
            return Started("vllm", args, note="started as `vllm serve`, which takes the same arguments")
        case "sglang.launch_server":
            return Started("sglang", args, None if python == "python3" else python)
        case _:
            return None
