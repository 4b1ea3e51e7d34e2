"""The floor of `bench.fragmentation`: best fit that sees one pod at a time and knows no price and no mix.

A pod goes to the node on which the least processors and GPUs stay free (each as a share of the largest node's), and
there to the fullest GPU that has room.
"""

from collections.abc import Sequence

import numpy as np

from bench.traces import WHOLE, Pod
from llmgw.placing.need import Site

MOST_CPU, MOST_GPU, WIDTH = 128_000.0, 8_000.0, 8
NOWHERE = 1e18


class OneByOne:
    def __init__(self, sites: Sequence[Site]) -> None:
        limitless = 1 << 40
        self.cpu = np.array([limitless if s.cpu_milli is None else s.cpu_milli for s in sites], np.int64)
        self.memory = np.array([limitless if s.host_mib is None else s.host_mib for s in sites], np.int64)
        self.gpus = np.array([[WHOLE] * len(s.slots) + [0] * (WIDTH - len(s.slots)) for s in sites], np.int64)
        self.kinds = np.array([s.slots[0].kind for s in sites])

    def place(self, pod: Pod) -> bool:
        fits = (self.cpu >= pod.cpu_milli) & (self.memory >= pod.memory_mib)
        if pod.gpus:
            fits &= (self.gpus >= pod.milli).sum(1) >= pod.gpus
        if pod.kinds:
            fits &= np.isin(self.kinds, pod.kinds)
        stays = (self.cpu - pod.cpu_milli) / MOST_CPU + (self.gpus.sum(1) - pod.gpu_milli) / MOST_GPU
        node = int(np.where(fits, stays, NOWHERE).argmin())
        if not fits[node]:
            return False
        self.cpu[node] -= pod.cpu_milli
        self.memory[node] -= pod.memory_mib
        for _ in range(pod.gpus):
            left = np.where(self.gpus[node] >= pod.milli, self.gpus[node], 2 * WHOLE)
            self.gpus[node, int(left.argmin())] -= pod.milli
        return True


def allocated(sites: Sequence[Site], coming: Sequence[Pod]) -> tuple[float, float]:
    """Percent of the GPUs that are allocated at 100 % asked for, and in the end."""
    floor, total = OneByOne(sites), WHOLE * sum(len(site.slots) for site in sites)
    arrived = placed = 0
    at_100: float | None = None
    for pod in coming:
        if at_100 is None and arrived + pod.gpu_milli > total:
            at_100 = 100 * placed / total
        arrived += pod.gpu_milli
        placed += pod.gpu_milli if floor.place(pod) else 0
    return at_100 or 0.0, 100 * placed / total
