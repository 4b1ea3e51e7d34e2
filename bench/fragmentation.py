"""How many GPUs of a fragmented cluster are allocated, on the openb traces (USENIX ATC 2023), through the planner.

Arrivals come in steps of 1 % of the cluster; each step is planned with all that was placed before standing where it
is. `whole`: whole GPUs only, the sort of GPU the only constraint; `shared`: with shares, processors and main memory.
`python -m bench.fragmentation [--kinds whole shared] [--traces NAME …] [--seeds 42 …] [--data FOLDER] [--strict]`

The floor, in the same run, is a best fit that sees one pod at a time. What the paper's authors published, and what a
prototype of this planner reached, are recorded figures and named so.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import one_by_one, traces
from bench.report import Target, add_flags, report, telling
from bench.traces import Pod
from llmgw.placing.best import plan
from llmgw.placing.field import Field
from llmgw.placing.need import Request, Site

STEP = 0.01


@dataclass(frozen=True, slots=True)
class Aim:
    """Percent of all GPUs to be allocated, at 100 or 130 % asked for; recorded figures beside it."""

    at: int
    least: float
    published: float | None = None
    """By the authors of FGD, the mean of ten seeds, one pod at a time."""
    prototype: float | None = None


AIMS = {
    ("whole", "multigpu50"): Aim(100, 99.5, prototype=99.98),
    ("whole", "gpuspec33"): Aim(100, 95.0, prototype=95.9),
    ("shared", "default"): Aim(130, 95.0, 95.39, 95.42),
    ("shared", "multigpu50"): Aim(130, 96.6, 97.18, 96.98),
    ("shared", "gpuspec33"): Aim(100, 93.0, 87.84, 93.57),
    ("shared", "cpu250"): Aim(130, 94.4, 93.41, 94.91),
}


@dataclass(frozen=True, slots=True)
class Allocated:
    """Percent of all GPUs that are allocated when 100 % of them, and when 130 %, have been asked for."""

    at_100: float
    at_130: float
    seconds: float

    def at(self, percent: int) -> float:
        return self.at_100 if percent == 100 else self.at_130


def run(sites: Sequence[Site], trace: Sequence[Pod], coming: Sequence[Pod], step: float = STEP) -> Allocated:
    """Plan the arrivals of one seed."""
    began = time.process_time()
    total = traces.WHOLE * sum(len(site.slots) for site in sites)
    models = traces.models(trace)
    expected = {models[pod].model: n for pod, n in Counter(trace).items()}
    field = Field(sites, list(models.values()), expected)
    arrived = placed = 0
    at_100: float | None = None
    batch: list[Pod] = []
    mark = step * total
    for pod in coming:
        if at_100 is None and arrived + pod.gpu_milli > total:
            placed += _place(field, models, batch)
            at_100, batch = 100 * placed / total, []
        arrived += pod.gpu_milli
        batch.append(pod)
        if arrived >= mark:
            placed += _place(field, models, batch)
            batch, mark = [], mark + step * total
    placed += _place(field, models, batch)
    return Allocated(at_100 or 0.0, 100 * placed / total, time.process_time() - began)


def _place(field: Field, models: dict[Pod, Request], batch: Sequence[Pod]) -> int:
    """Plan for a batch and let it stay; GPUs it got, in thousandths."""
    field.reprice()
    found = plan(field, [replace(models[pod], count=n) for pod, n in Counter(batch).items()])
    gpu_milli = {models[pod].model: pod.gpu_milli for pod in batch}
    for holding in found.starts:
        holding.is_new = False
        field.yard.take(holding)
    return sum(gpu_milli[holding.model] for holding in found.starts)


def _cases(
    kinds: Sequence[str], names: Sequence[str], folder: Path
) -> Iterator[tuple[str, str, list[Site], list[Pod]]]:
    for kind in kinds:
        sites = traces.sites(folder, only_gpus=kind == "whole")
        for name in names or [n for k, n in AIMS if k == kind]:
            trace = traces.pods(name, folder)
            yield kind, name, sites, traces.whole_only(trace) if kind == "whole" else trace


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.fragmentation", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=("whole", "shared"), default=["whole", "shared"])
    parser.add_argument(
        "--traces", nargs="+", default=[], help="names after openb_pod_list_; absent: those with an aim"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[42])
    parser.add_argument("--data", type=Path, default=traces.DATA, help="folder of the traces, plain or gzip")
    add_flags(parser)
    options = parser.parse_args(argv)
    figures: dict[str, object] = {}
    floors: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets: list[Target] = []
    for kind, name, sites, trace in _cases(options.kinds, options.traces, options.data):
        coming = [
            traces.arrivals(trace, traces.WHOLE * sum(len(s.slots) for s in sites), seed) for seed in options.seeds
        ]
        found = [run(sites, trace, pods) for pods in coming]
        floor = [one_by_one.allocated(sites, pods) for pods in coming]
        aim, case = AIMS.get((kind, name), Aim(130, 0.0)), f"{kind} {name}"
        reached = statistics.mean(one.at(aim.at) for one in found)
        figures[case] = {
            "at_100": round(statistics.mean(one.at_100 for one in found), 2),
            "at_130": round(statistics.mean(one.at_130 for one in found), 2),
            "cpu_s": round(statistics.mean(one.seconds for one in found), 1),
            "seeds": options.seeds,
        }
        floors[case] = {
            "best_fit_at_100": round(statistics.mean(a for a, _ in floor), 2),
            "best_fit_at_130": round(statistics.mean(b for _, b in floor), 2),
            "published_recorded": aim.published,
            "prototype_recorded": aim.prototype,
        }
        best_fit = statistics.mean(f[0] if aim.at == 100 else f[1] for f in floor)
        ratios[f"{case}: idle GPUs against best fit"] = (100 - reached) / max(0.01, 100 - best_fit)
        targets.append(Target(f"{case}: idle GPUs at {aim.at} %", 100 - reached, round(100 - aim.least, 2)))
    return report("fragmentation", figures=figures, floor=floors, ratios=ratios, targets=targets, how=telling(options))


if __name__ == "__main__":
    sys.exit(main())
