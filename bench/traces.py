"""The openb traces of a production GPU cluster, as sites and requests (`bench/data`; their notice lies beside them).

A device has 1000 units of memory: a pod that shares one claims a part of them. Arrivals follow "Beware of
Fragmentation" (Weng et al., USENIX ATC 2023, §6.1): the trace in seeded order, then pods drawn from it with
replacement until the GPUs asked for are 130 % of the cluster's. Nobody departs; what finds no place is dropped.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.placing.need import Ask, Need, Request, Site, Slot

DATA = Path(__file__).parent / "data"
WHOLE = 1000
INFLATION = 1.3
NAMED = ("default", "multigpu50", "gpuspec33", "cpu250")


@dataclass(frozen=True, slots=True, order=True)
class Pod:
    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    kinds: tuple[str, ...]

    @property
    def gpu_milli(self) -> int:
        return self.gpus * self.milli

    def need(self) -> Need:
        claim = None if self.milli == WHOLE else self.milli
        asks = (Ask(self.gpus, self.kinds, claim_mib=claim),) if self.gpus else ()
        return Need(asks, self.memory_mib, self.cpu_milli)


def pods(trace: str, folder: Path = DATA) -> list[Pod]:
    return [_pod(row) for row in _rows(folder / f"openb_pod_list_{trace}.csv")]


def _pod(row: dict[str, str]) -> Pod:
    gpus = int(row["num_gpu"])
    kinds = tuple(sorted(k for k in (row.get("gpu_spec") or "").split("|") if k)) if gpus else ()
    milli = min(WHOLE, int(float(row["gpu_milli"] or 0))) if gpus else 0
    return Pod(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, kinds)


def whole_only(trace: Sequence[Pod]) -> list[Pod]:
    """Pods with whole GPUs, asking for nothing else."""
    return [Pod(0, 0, p.gpus, WHOLE, p.kinds) for p in trace if p.gpus and p.milli == WHOLE]


def sites(folder: Path = DATA, *, only_gpus: bool = False) -> list[Site]:
    """Nodes with GPUs, in the order of the file. `only_gpus`: with no limit on processors and memory."""
    rows = [row for row in _rows(folder / "openb_node_list_gpu_node.csv") if int(row["gpu"]) > 0]
    return [
        Site(
            NodeId(f"n{i:05d}"),
            tuple(Slot(DeviceId(f"n{i:05d}-{d}"), row["model"], WHOLE, WHOLE) for d in range(int(row["gpu"]))),
            host_mib=None if only_gpus else int(row["memory_mib"]),
            cpu_milli=None if only_gpus else int(row["cpu_milli"]),
        )
        for i, row in enumerate(rows)
    ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV, plain or packed with gzip beside its name."""
    packed = path.with_name(path.name + ".gz")
    with gzip.open(packed, "rt", newline="") if packed.exists() else path.open(newline="") as file:
        yield from csv.DictReader(file)


def arrivals(trace: Sequence[Pod], total_milli: int, seed: int) -> list[Pod]:
    """The pods of one run, in order."""
    rng = np.random.default_rng(seed)
    coming = [trace[i] for i in rng.permutation(len(trace))]
    asked, limit = sum(p.gpu_milli for p in coming), INFLATION * total_milli
    while asked > limit:
        asked -= coming.pop(int(rng.integers(len(coming)))).gpu_milli
    while True:
        pod = trace[int(rng.integers(len(trace)))]
        if asked + pod.gpu_milli > limit:
            return coming
        coming.append(pod)
        asked += pod.gpu_milli


MANY = 1_000_000
"""Pods are strangers to one another: no two of a kind have to be spread."""


def models(trace: Sequence[Pod]) -> dict[Pod, Request]:
    """A model per distinct pod."""
    expected = Counter(trace)
    return {
        pod: Request(ModelName(f"m{i:04d}"), (pod.need(),), 0, desired=MANY)
        for i, pod in enumerate(sorted(expected, key=lambda p: (p.gpus, p.milli, p.cpu_milli, p.memory_mib, p.kinds)))
    }
