"""A picture of a bench's line: times beside their floor, and how far each target is reached. Needs the `bench` extra.

Times are drawn from median to maximum, with a dot at the median; the floor of the same name stands below in grey. A
target is drawn as a share of what it may be at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report import Target

MET, MISSED, FLOOR, TIME = "#2e7d32", "#c62828", "#9e9e9e", "#1565c0"
ROW_IN, HEAD_IN, WIDE_IN = 0.32, 1.2, 10.0
WIDE_RANGE = 30.0
"""Times further apart than this are drawn on a logarithmic axis."""
MOST_DRAWN = 2.0
"""A target missed by more is cut off there; its number says how far."""

Times = dict[str, Mapping[str, float]]


def times(figures: Mapping[str, object], path: str = "") -> Iterator[tuple[str, Mapping[str, float]]]:
    """Every spread of times in a tree of figures, by its path."""
    if "p50_ms" in figures:
        yield path or "floor", {name: float(str(value)) for name, value in figures.items()}
        return
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from times(value, f"{path}, {name}" if path else name)


def rows(figures: Mapping[str, object], floor: Mapping[str, object]) -> list[tuple[str, Mapping[str, float], str]]:
    """(label, times, colour) from the top: each figure, and below it the floor of the same name; then other floors."""
    floors: Times = dict(times(floor))
    found: list[tuple[str, Mapping[str, float], str]] = []
    for name, measured in times(figures):
        found.append((name, measured, TIME))
        if name in floors:
            found.append(("floor", floors.pop(name), FLOOR))
    return [*found, *((f"floor: {name}" if name != "floor" else name, seen, FLOOR) for name, seen in floors.items())]


def draw(
    bench: str,
    figures: Mapping[str, object],
    floor: Mapping[str, object],
    targets: Sequence[Target],
    folder: Path,
) -> Path:
    """Write `bench-NAME.png` into the folder; its path."""
    measured = rows(figures, floor)
    heights = [ROW_IN * len(part) + HEAD_IN for part in (measured, targets) if part]
    picture = Figure(figsize=(WIDE_IN, sum(heights)), layout="constrained")
    picture.suptitle(f"bench.{bench}")
    panels = picture.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if measured:
        _draw_times(panels[0], measured)
    if targets:
        _draw_targets(panels[-1], targets)
    path = folder / f"bench-{bench}.png"
    picture.savefig(path, dpi=120)
    return path


def _draw_times(panel: Axes, measured: Sequence[tuple[str, Mapping[str, float], str]]) -> None:
    for place, (_, seen, colour) in enumerate(measured):
        panel.plot([seen["p50_ms"], seen["max_ms"]], [place, place], color=colour, linewidth=5, alpha=0.35)
        panel.plot(seen["p50_ms"], place, "o", color=colour)
        panel.annotate(
            f"{seen['p50_ms']:.3g}", (seen["p50_ms"], place), (0, 6), textcoords="offset points", ha="center", size=7
        )
    medians = [seen["p50_ms"] for _, seen, _ in measured]
    if min(medians) > 0 and max(medians) / min(medians) > WIDE_RANGE:
        panel.set_xscale("log")
    else:
        panel.set_xlim(left=0)
    _label(panel, [name for name, _, _ in measured], "ms, median to maximum")


def _draw_targets(panel: Axes, targets: Sequence[Target]) -> None:
    for place, target in enumerate(targets):
        share = _share(target)
        panel.barh(place, min(share, MOST_DRAWN), color=MET if target.met else MISSED, alpha=0.8)
        panel.annotate(
            f" {target.value:.4g} of {target.at_most:g}",
            (min(share, MOST_DRAWN), place),
            va="center",
            size=7,
        )
    panel.axvline(1.0, color="black", linewidth=1)
    panel.set_xlim(min(0.0, *(_share(target) for target in targets)), MOST_DRAWN + 0.5)
    _label(panel, [target.name for target in targets], "share of what it may be at most")


def _share(target: Target) -> float:
    """Of the limit. Where nothing is allowed, whatever there is is too much."""
    if target.at_most > 0:
        return target.value / target.at_most
    return 0.0 if target.met else MOST_DRAWN


def _label(panel: Axes, names: Sequence[str], unit: str) -> None:
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlabel(unit)
    panel.grid(axis="x", alpha=0.3)
