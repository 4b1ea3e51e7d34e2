"""How many devices an engine's own arguments spread it over, and how much of each they leave to it."""

import re
from collections.abc import Mapping, Sequence
from math import prod

from llmgw.checking.launches import flag_of
from llmgw.engines import EngineRow
from llmgw.importing.commands import options

_SPREADING: Mapping[str, tuple[frozenset[str], ...]] = {
    "vllm": (
        frozenset({"--tensor-parallel-size", "-tp"}),
        frozenset({"--pipeline-parallel-size", "-pp"}),
        frozenset({"--data-parallel-size", "-dp"}),
    ),
    "sglang": (frozenset({"--tensor-parallel-size", "--tp-size", "--tp"}), frozenset({"--pp-size", "--pp"})),
}
"""Flags whose values multiply to the number of devices."""


def spread_of(row: EngineRow, args: Sequence[str]) -> int:
    """How many devices the arguments spread an engine over; 1 where they do not say, 0 where they say the CPU."""
    given = [(flag_of(option.flag, row), option.value) for option in options(args)]
    if row.name == "command":
        return int(any(flag in ("--gpus", "--device") for flag, _ in given))
    if row.name == "llama.cpp":
        return _llama_devices(dict(given))
    if ("--device", "cpu") in given:
        return 0
    return min(prod(_size(given, flags) for flags in _SPREADING.get(row.name, ())), 1024)


def ranks_of(args: Sequence[str]) -> int:
    """How many times vLLM's arguments have the whole model side by side in one engine (data parallel)."""
    return _size([(option.flag, option.value) for option in options(args)], _SPREADING["vllm"][2])


def _size(given: Sequence[tuple[str, str]], flags: frozenset[str]) -> int:
    return next((int(value) for flag, value in given if flag in flags and re.fullmatch("[1-9][0-9]{0,2}", value)), 1)


def _llama_devices(given: Mapping[str, str]) -> int:
    """By `--tensor-split 3,1`, and by `-ngl 0`, which keeps every layer on the CPU."""
    if any(given.get(flag) == "0" for flag in ("-ngl", "--gpu-layers", "--n-gpu-layers")):
        return 0
    split = given.get("-ts") or given.get("--tensor-split") or "1"
    return min(max(1, len([share for share in re.split("[,/]", split) if share.strip() not in ("", "0")])), 1024)


_SHARE_FLAGS: Mapping[str, str] = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}
MOST_SHARE = 0.5
"""With more of a device nothing else fits beside it: such an engine has it alone."""


def share_of(engine: str, args: Sequence[str]) -> float | None:
    """The share of each device's memory that the arguments leave to the engine, where another fits beside it."""
    flag = _SHARE_FLAGS.get(engine)
    values = [option.value for option in options(args) if option.flag == flag]
    if not values or re.fullmatch(r"0?\.[0-9]{1,4}", values[-1]) is None:
        return None
    return share if 0 < (share := float(values[-1])) <= MOST_SHARE else None


def is_told_a_share(engine: str, args: Sequence[str]) -> bool:
    """Whether the arguments say what share of its devices the engine takes, however large."""
    return any(option.flag == _SHARE_FLAGS.get(engine) for option in options(args))
