"""Where a dev stack lives: its folder, its ports, its lock. Made once, the same at every later run.

The folder holds everything a second run needs to go on: Temporal's database, the agents' ledgers, the router's tables,
logs, and the ports that were chosen. Nothing here starts or ends a process.
"""

import contextlib
import fcntl
import json
import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TRIES = 200
"""How far above its preferred number a port is looked for."""
ENGINE_PORTS = 200
"""Ports for the engines of one node."""
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Use:
    """What a port is for, and the number people expect it at."""

    name: str
    preferred: int
    what: str


USES: tuple[Use, ...] = (
    Use("temporal", 7233, "Temporal"),
    Use("ui", 8233, "Temporal's web UI"),
    Use("router", 8080, "the router"),
    Use("node-a", 7811, "the agent of node-a"),
    Use("node-b", 7812, "the agent of node-b"),
    Use("metrics", 9464, "the worker's metrics"),
)
NODES = ("node-a", "node-b")
ROW = 500
"""More than the ports of one stack in a row."""
ENGINES_FROM = 21000


class StackError(Exception):
    """The stack cannot come up. The text says why and how to mend it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports by the name of their use; `engines`: the first port of each node's range."""

    uses: Mapping[str, int]
    engines: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.uses[name]

    def engine_range(self, node: str) -> str:
        """As the agent's `--port-range` takes it."""
        return f"{self.engines[node]}-{self.engines[node] + ENGINE_PORTS - 1}"


@dataclass(frozen=True, slots=True)
class Layout:
    """One stack's folder (absolute) and ports."""

    root: Path
    ports: Ports

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def url(self, name: str) -> str:
        return f"http://{HOST}:{self.ports[name]}"

    @property
    def temporal_address(self) -> str:
        return f"{HOST}:{self.ports['temporal']}"

    @property
    def catalog(self) -> Path:
        """The example catalog that was applied."""
        return self.root / "catalog.json"

    @property
    def next_catalog(self) -> Path:
        """The same with one model more."""
        return self.root / "catalog-with-second-model.json"

    @property
    def drained(self) -> Path:
        """Exists while the nodes are drained because the stack was ended, not because somebody asked for it."""
        return self.root / "drained-by-the-end"


# --- the lock ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Hold the folder for one stack. StackError when another one has it.

    The kernel lets go of the lock when the holder dies, however it dies.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        opened = (root / "lock").open("a+")
    except OSError as error:
        raise StackError(f"{root} cannot hold a dev stack ({error.strerror}): give another --state-dir DIR") from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StackError(
                f"a dev stack already runs on {root} (process {holder}): end it with Ctrl-C, "
                "or give this one a folder of its own with --state-dir DIR"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


# --- ports ---------------------------------------------------------------------------------------------------------


def is_free(port: int) -> bool:
    """Whether a server could listen on the port of the loopback address now."""
    with socket.socket() as probe:
        # As servers do: a port that only waits for late packets of closed connections is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def remembered_ports(root: Path) -> Ports | None:
    """The ports of the last run. None when there was none, or what is on disk is not whole."""
    try:
        kept = json.loads((root / "ports.json").read_text())
        uses = {use.name: int(kept["uses"][use.name]) for use in USES}
        return Ports(uses, {node: int(kept["engines"][node]) for node in NODES})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember_ports(root: Path, ports: Ports) -> None:
    draft = root / "ports.json.new"
    draft.write_text(json.dumps({"uses": dict(ports.uses), "engines": dict(ports.engines)}, indent=2) + "\n")
    draft.replace(root / "ports.json")


def choose_ports(kept: Ports | None, first: int | None, free: Callable[[int], bool] = is_free) -> Ports:
    """The kept ports, or new ones: upwards of `first`, or near the numbers people expect.

    `first` leaves the kept ones aside: agents and routers get new addresses, which the next catalog carries.
    StackError names every port that is taken.
    """
    if first is None and kept is not None:
        _refuse_taken(kept, free)
        return kept
    if first is not None:
        return _in_a_row(first, free)
    uses: dict[str, int] = {}
    for use in USES:
        uses[use.name] = _next_free(use, frozenset(uses.values()), free)
    return Ports(uses, _engine_ports(ENGINES_FROM + 2 * ENGINE_PORTS * ((uses["router"] - 8080) % 20)))


def free_row(tries: int = 50) -> int:
    """A number from which a stack's ports are free, somewhere below those the kernel gives out to clients."""
    for _ in range(tries):
        first = random.randrange(12_000, 30_000, ROW)
        if all(is_free(first + number) for number in range(len(USES))):
            return first
    raise StackError("found no free ports from 12000 to 30000: choose some with --ports-from N")


def _refuse_taken(ports: Ports, free: Callable[[int], bool]) -> None:
    taken = [f"{ports[use.name]} ({use.what})" for use in USES if not free(ports[use.name])]
    if taken:
        raise StackError(
            f"port {', '.join(taken)} of this stack's last run is taken by another program: end that program, "
            "or choose other ports with --ports-from N"
        )


def _in_a_row(first: int, free: Callable[[int], bool]) -> Ports:
    last = first + len(USES) + len(NODES) * ENGINE_PORTS - 1
    if first < 1024 or last > 65535:
        raise StackError(f"--ports-from {first}: the stack needs {last - first + 1} ports from 1024 to 65535")
    ports = Ports(
        {use.name: first + number for number, use in enumerate(USES)},
        _engine_ports(first + len(USES)),
    )
    taken = [f"{ports[use.name]} ({use.what})" for use in USES if not free(ports[use.name])]
    if taken:
        raise StackError(f"--ports-from {first}: port {', '.join(taken)} is taken; give another number")
    return ports


def _engine_ports(first: int) -> Mapping[str, int]:
    return {node: first + number * ENGINE_PORTS for number, node in enumerate(NODES)}


def _next_free(use: Use, chosen: frozenset[int], free: Callable[[int], bool]) -> int:
    for port in range(use.preferred, use.preferred + TRIES):
        if port not in chosen and free(port):
            return port
    raise StackError(
        f"no port for {use.what}: {use.preferred} to {use.preferred + TRIES - 1} are all taken; "
        "choose others with --ports-from N"
    )
