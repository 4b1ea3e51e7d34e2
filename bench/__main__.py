"""Every bench, one after the other, a line of JSON each: `python -m bench [NAME …] [--short] [--plot]`.

Each runs in a process of its own, with nothing beside it. `--short` is for seeing that all of them work; its figures
mean little. Exit code 1 when one of them failed to run at all (a missed target is no failure: see each one's `met`).
"""

import argparse
import subprocess
import sys

from bench.report import finished

BENCHES: dict[str, tuple[str, ...]] = {
    # name: arguments of the short form
    "latency": ("--nodes", "20", "--rounds", "5"),
    "first": ("--rounds", "1", "--crowds", "1"),
    "replace": ("--rounds", "1"),
    "rollout": ("--nodes", "20", "--rounds", "1"),
    "idle": ("--nodes", "20", "--seconds", "5"),
    "churn": ("--nodes", "20", "--deaths", "60", "--minutes", "0.2"),
    "failover": ("--nodes", "5", "--kills", "1", "--freezes", "1"),
    "nodeloss": ("--nodes", "5", "--deaths", "1", "--silences", "1", "--lost", "12", "--restarts", "1"),
    "catalog": ("--models", "40", "--rounds", "1"),
    "publish": ("--nodes", "20", "--rounds", "3"),
    "router": ("--rounds", "1", "--seconds", "0.5", "--streams", "50"),
    "load": ("--replacements", "5", "--rolls", "1", "--away-s", "5", "--wakes", "1", "--clients", "4"),
    "agent": ("--starts", "5", "--rounds", "1", "--idle", "5", "--settle-s", "3", "--deaths", "3"),
    "plan": ("--nodes", "100", "--pass-nodes", "50", "--repeat", "1"),
    "fragmentation": ("--kinds", "whole", "--seeds", "42"),
    "oracle": ("--count", "10"),
    "soak": ("--minutes", "0.5"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; default all")
    parser.add_argument("--short", action="store_true", help="the short form of each")
    parser.add_argument("--plot", action="store_true", help="draw bench-NAME.png of each, in this folder")
    given = parser.parse_args()
    if unknown := set(given.names) - BENCHES.keys():
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    beside = ("--plot",) if given.plot else ()
    failed = [n for n in given.names or BENCHES if not _ran(n, (*(BENCHES[n] if given.short else ()), *beside))]
    for name in failed:
        print(f"bench {name} did not run to its end", file=sys.stderr)
    return 1 if failed else 0


def _ran(name: str, arguments: tuple[str, ...]) -> bool:
    print(f"bench {name} …", file=sys.stderr)
    return subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], check=False).returncode == 0


if __name__ == "__main__":
    finished(main())
