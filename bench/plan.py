"""How long planning takes: the planner alone on a synthetic fleet, and a whole `decide` over a fleet that runs.

`python -m bench.plan [--nodes 1250] [--fill 0.95] [--repeat 5] [--memory] [--strict]`. The floor, in the same run, is
a greedy pass over buckets of free devices: no priorities, no prices, no zones, no weights, no reasons. `--memory`:
the peak of a process that plans 10,000 nodes, in MiB.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from bench.fleet import running, synthetic
from bench.fleet.synthetic import Fleet
from bench.report import Target, add_flags, report, telling
from llmgw.decide import decide
from llmgw.placing.planner import Placing, plan

PROTOTYPE = {"full_over_floor": 14.0}
"""Recorded, not measured here: a single-file prototype of this planner took so many times the floor for the full plan
(1,250 nodes, 95 % asked for, same machine and minute)."""


def best_ms(call: Callable[[], object], repeat: int) -> float:
    """The shortest of several, by the processor's own time: the machine is not alone."""
    times = []
    for _ in range(repeat):
        began = time.process_time()
        call()
        times.append(1000 * (time.process_time() - began))
    return min(times)


def planner(nodes: int, fill: float, repeat: int) -> dict[str, float]:
    fleet = synthetic.fleet(nodes, fill)
    first = _planned(fleet)
    placed = synthetic.applied(fleet, first)
    lost = synthetic.without_node(placed, synthetic.busiest(placed))
    added = synthetic.with_model(placed, "new", replicas=20, devices=4, kinds=("h100", "h200"), rank=2)
    return {
        "replicas": float(len(first.starts)),
        "lacking": float(sum(first.lacking.values())),
        "floor_ms": best_ms(lambda: synthetic.greedy(fleet), repeat),
        "full_ms": best_ms(lambda: _planned(fleet), repeat),
        "no_change_ms": best_ms(lambda: _planned(placed), repeat),
        "node_lost_ms": best_ms(lambda: _planned(lost), repeat),
        "model_added_ms": best_ms(lambda: _planned(added), repeat),
    }


def _planned(fleet: Fleet) -> Placing:
    """From values to a plan: the index is built anew, as in every pass."""
    return plan(synthetic.field(fleet), fleet.requests)


def whole_pass(nodes: int, repeat: int) -> dict[str, float]:
    """`decide` over a fleet in which everything runs, with eight replicas on each node."""
    world, now_s = running.world(nodes)
    lost = running.with_lost_node(world, now_s)
    added = running.with_model(world, "new", replicas=20)
    return {
        "replicas": float(len(world.assignments)),
        "no_change_ms": best_ms(lambda: decide(world, now_s), repeat),
        "node_lost_ms": best_ms(lambda: decide(lost, now_s), repeat),
        "model_added_ms": best_ms(lambda: decide(added, now_s), repeat),
    }


def peak_mib(nodes: int) -> float:
    """The peak of a fresh process that plans so many nodes."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.plan", "--only-memory", str(nodes)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.plan", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--fill", type=float, default=0.95)
    parser.add_argument("--pass-nodes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only-memory", type=int, metavar="NODES", help="print the peak of planning so many nodes")
    add_flags(parser)
    options = parser.parse_args(argv)
    if options.only_memory:
        _planned(synthetic.fleet(options.only_memory, options.fill))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return 0
    alone = planner(options.nodes, options.fill, options.repeat)
    passes = whole_pass(options.pass_nodes, options.repeat)
    figures: dict[str, object] = {"planner": _rounded(alone), "decide": _rounded(passes)}
    targets = [
        Target("planner full_ms", alone["full_ms"], 300),
        Target("full over floor", alone["full_ms"] / alone["floor_ms"], 3 * PROTOTYPE["full_over_floor"]),
        *(Target(f"planner {name}", alone[name], 50) for name in ("no_change_ms", "node_lost_ms", "model_added_ms")),
        Target("decide no_change_ms", passes["no_change_ms"], 50),
    ]
    if options.memory:
        figures["peak_mib"] = round(peak_mib(10_000))
        targets.append(Target("peak MiB at 10,000 nodes", float(str(figures["peak_mib"])), 400))
    return report(
        "plan",
        figures=figures,
        floor={"greedy_ms": round(alone["floor_ms"], 2), "prototype_recorded": PROTOTYPE},
        ratios={"full_over_floor": alone["full_ms"] / alone["floor_ms"]},
        targets=targets,
        how=telling(options),
    )


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main())
