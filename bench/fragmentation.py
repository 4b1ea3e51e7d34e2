"""How many GPUs of a fragmented cluster are allocated, on the openb traces (USENIX ATC 2023), through the planner.

Arrivals come in steps of 1 % of the cluster; each step is planned with all that was placed before standing where it
is. `whole`: whole GPUs only, sorts of GPU the only constraint; `shared`: with shares, processors and main memory.
`python -m bench.fragmentation [--traces a,b] [--seeds 42] [--kinds whole,shared] [--data FOLDER] [--strict]`

The floor is a best fit that sees one pod at a time, in the same run; published and recorded figures stand beside it.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import traces
from bench.traces import Pod
from llmgw.placing.field import Field
from llmgw.placing.need import Request
from llmgw.placing.planner import plan

STEP = 0.01


@dataclass(frozen=True, slots=True)
class Allocated:
    """Percent of all GPUs that are allocated when 100 % of them, and when 130 %, have been asked for."""

    at_100: float
    at_130: float
    seconds: float


def run(sites: Sequence[traces.Site], trace: Sequence[Pod], seed: int, step: float = STEP) -> Allocated:
    began = time.perf_counter()
    total = traces.WHOLE * sum(len(site.slots) for site in sites)
    models = traces.models(trace)
    expected = {models[pod].model: n for pod, n in Counter(trace).items()}
    field = Field(sites, list(models.values()), expected)
    arrived = placed = 0
    at_100: float | None = None
    waiting: list[Pod] = []
    marks = _marks(total, step)
    mark = next(marks)
    for pod in traces.arrivals(trace, total, seed):
        if at_100 is None and arrived + pod.gpu_milli > total:
            placed += _place(field, models, waiting)
            at_100, waiting = 100 * placed / total, []
        arrived += pod.gpu_milli
        waiting.append(pod)
        if arrived >= mark:
            placed += _place(field, models, waiting)
            waiting, mark = [], next(marks)
    placed += _place(field, models, waiting)
    return Allocated(at_100 or 0.0, 100 * placed / total, time.perf_counter() - began)


def _marks(total: int, step: float):
    n = 1
    while True:
        yield n * step * total
        n += 1


def _place(field: Field, models: dict[Pod, Request], pods: Sequence[Pod]) -> int:
    requests = [replace(models[pod], count=n) for pod, n in Counter(pods).items()]
    by_name = {models[pod].model: pod for pod in pods}
    field.reprice()
    found = plan(field, requests)
    for holding in found.starts:
        holding.is_new = False
        field.yard.take(holding)
    return sum(by_name[h.model].gpu_milli for h in found.starts)


if __name__ == "__main__":
    kind, name, seed = sys.argv[1:4]
    p = traces.pods(name)
    s = traces.sites(only_gpus=kind == "whole")
    print(kind, name, seed, run(s, traces.whole_only(p) if kind == "whole" else p, int(seed)))
