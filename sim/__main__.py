"""`python -m sim [FROM] TO`: tell the stories of these seeds, on all processors. Exits 1 when one ends badly, with the
happenings that are enough for it."""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

from sim import story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Tell simulated fleets stories of faults.")
    parser.add_argument("seeds", nargs="+", type=int, metavar="SEED", help="the first, and the one after the last")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many tell at once")
    args = parser.parse_args()
    first, end = args.seeds if len(args.seeds) == 2 else (0, args.seeds[0])
    bad = 0
    with ProcessPoolExecutor(args.processes) as pool:
        for seed, told in zip(range(first, end), pool.map(story.ending, range(first, end), chunksize=8), strict=True):
            if told:
                bad += 1
                print(f"seed {seed}, these happenings are enough:\n{told}\n", flush=True)
    print(f"{end - first} stories, {bad} ended badly")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
