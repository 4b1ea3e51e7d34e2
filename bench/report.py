"""The convention of every figure: one JSON line with figures, the floor taken in the same run, ratios and targets.

`python -m bench.NAME [--strict] [--plot [FOLDER]]`: with `--strict` the exit code is 1 where a target is missed, and
each is named; with `--plot` the line is drawn as well, and the path of the picture goes to standard error.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Target:
    """`value` must not be above `at_most`."""

    name: str
    value: float
    at_most: float

    @property
    def met(self) -> bool:
        return self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Telling:
    """How a bench tells its results. `plot`: the folder of the picture; None: there is none."""

    strict: bool = False
    plot: Path | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """What every bench takes."""
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument(
        "--plot",
        type=_folder,
        nargs="?",
        const=".",
        metavar="FOLDER",
        help="draw bench-NAME.png there (here by default)",
    )


def _folder(text: str) -> Path:
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("pictures need matplotlib: install llmgw with its `bench` extra")
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return Path(text)


def telling(given: argparse.Namespace) -> Telling:
    """What `add_flags` has taken."""
    return Telling(given.strict, given.plot)


def options(doc: str | None, **defaults: float | str | list[int]) -> argparse.Namespace:
    """The command line of a bench: what every bench takes, and a number (or several) for each of `defaults`."""
    parser = argparse.ArgumentParser(description=doc)
    for name, default in defaults.items():
        kind = int if isinstance(default, list) else type(default)
        many = "+" if isinstance(default, list) else None
        shown = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        parser.add_argument(f"--{name}", type=kind, nargs=many, default=default, help=f"default {shown}")
    add_flags(parser)
    return parser.parse_args()


def spread(samples_ms: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile and maximum of times in ms, and how many there were."""
    ordered = sorted(samples_ms)
    return {
        "p50_ms": round(statistics.median(ordered), 2),
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))], 2),
        "p99_ms": round(ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max_ms": round(ordered[-1], 2),
        "n": len(ordered),
    }


def report(
    bench: str,
    *,
    figures: Mapping[str, object],
    floor: Mapping[str, object],
    ratios: Mapping[str, float],
    targets: Sequence[Target],
    how: Telling,
) -> int:
    """Print the line; the exit code."""
    line = {
        "bench": bench,
        "figures": figures,
        "floor": floor,
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "targets": {t.name: t.at_most for t in targets},
        "met": all(t.met for t in targets),
    }
    print(json.dumps(line))
    missed = [t for t in targets if not t.met]
    for target in missed:
        print(f"missed: {target.name} is {target.value:.3f}, to reach {target.at_most}", file=sys.stderr)
    if how.plot is not None:
        from bench.picture import draw

        print(draw(bench, figures, floor, targets, how.plot), file=sys.stderr)
    return 1 if how.strict and missed else 0


def finished(code: int) -> NoReturn:
    """End the process here: Temporal's native runtime may abort an ordinary exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
