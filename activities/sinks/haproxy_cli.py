"""HAProxy's master socket: several commands per connection, and what their answers mean.

`@1` speaks to the process in charge, `@!PID` to a former one that still ends its streams. Source: HAProxy 2.6
management guide, chapters 9.3 and 9.4; what is not written there was measured with 2.6.12.
"""

import asyncio
import csv
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from activities.sinks.sink import RouterError

ANSWER_LIMIT_S = 2.0
CURRENT = "@1"
MAX_LINE_CHARS = 8_000
"""Half of what HAProxy reads as one line (`tune.bufsize`)."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The master, the worker in charge (None: there is none), and former workers that still end their streams."""

    master: int
    worker: int | None
    former: tuple[int, ...]
    reloads: int = 0
    failed: int = 0
    """Reloads since the last one that succeeded."""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server of a backend as `show stat` tells it."""

    backend: str
    server: str
    address: str
    weight: int
    backup: bool
    maintenance: bool
    in_flight: int
    sessions: int
    idle_s: float | None
    """Seconds since the last session; None: there was none."""


class MasterSocket:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(self, command: str) -> str:
        """The whole answer. `RouterError` when there is none."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(command.encode() + b"\n")
                    writer.write_eof()
                    return (await reader.read()).decode(errors="replace").strip()
                finally:
                    writer.close()
        except TimeoutError:
            raise RouterError(f"no answer in time at {self._path}") from None
        except OSError as error:
            raise RouterError(f"cannot connect to {self._path}: {error.strerror}") from error

    async def tell(self, commands: Iterable[str], *accepted: str) -> None:
        """Tell the worker in charge, in order. `RouterError` for any answer that does not begin as `accepted`; the
        commands after it may have been followed all the same."""
        for line in _lines(f"{CURRENT} {command}" for command in commands):
            for answer in filter(None, map(str.strip, (await self.ask(line)).splitlines())):
                if not answer.startswith(accepted or ("\0",)):
                    raise RouterError(f"HAProxy refuses one of `{line[:60]}`: {answer}")

    async def processes(self) -> Processes:
        """Who runs. `RouterError` when the answer is not understood: the socket is not a master's."""
        answer = await self.ask("show proc")
        rows = [line.split() for line in answer.splitlines() if line and not line.startswith("#")]
        masters = [int(row[0]) for row in rows if len(row) > 2 and row[1] == "master"]
        workers = [(int(row[0]), int(row[2])) for row in rows if len(row) > 2 and row[1] == "worker"]
        if not masters:
            raise RouterError(f"{self._path} is no master socket: start HAProxy with `-W -S {self._path}`")
        old = answer.partition("# old workers")[2].partition("# programs")[0]
        former = tuple(int(line.split()[0]) for line in old.splitlines() if line.strip() and not line.startswith("#"))
        current = next((pid for pid, _ in workers if pid not in former), None)
        reloads = next(int(row[2]) for row in rows if len(row) > 2 and row[1] == "master")
        failed = re.search(r"\[failed: (\d+)\]", answer)
        return Processes(masters[0], current, former, reloads, int(failed.group(1)) if failed else 0)

    async def servers(self, process: str = CURRENT, backends: Iterable[str] | None = None) -> list[ServerRow]:
        """All servers, or those of some backends; of one that is not known there are none."""
        if backends is None:
            return list(_rows(await self.ask(f"{process} show stat -1 4 -1"), whole=True))
        lines = _lines(f"{process} show stat {name} 4 -1" for name in backends)
        return [row for line in lines for row in _rows(await self.ask(line), whole=False)]

    async def backends(self) -> frozenset[str]:
        """Names of all backends that the worker in charge knows."""
        answer = await self.ask(f"{CURRENT} show backend")
        return frozenset(line.strip() for line in answer.splitlines() if line and not line.startswith("#"))

    async def map_entries(self, path: Path) -> dict[str, str]:
        """A map as the worker in charge holds it; empty when it holds none of that name."""
        answer = await self.ask(f"{CURRENT} show map {path}")
        rows = (line.split(None, 2) for line in answer.splitlines() if line.startswith("0x"))
        return {row[1]: row[2] for row in rows if len(row) == 3}


_COLUMNS = ("pxname", "svname", "addr", "uweight", "bck", "status", "scur", "qcur", "stot", "lastsess")


def _rows(answer: str, *, whole: bool) -> Iterator[ServerRow]:
    """Rows of one table after the other. `whole`: there has to be one."""
    if whole and not answer.startswith("# "):
        raise RouterError(f"HAProxy tells no statistics: {answer.splitlines()[0] if answer else 'no answer'}")
    take: operator.itemgetter[object] | None = None
    for line in csv.reader(answer.splitlines()):
        if line and line[0].startswith("# "):
            take = _columns([line[0].removeprefix("# "), *line[1:]])
        elif take is not None and len(line) > 1:
            yield _row(*take(line))


def _columns(head: list[str]) -> "operator.itemgetter[object]":
    try:
        return operator.itemgetter(*(head.index(name) for name in _COLUMNS))
    except ValueError as error:
        raise RouterError(f"HAProxy's statistics lack a column: {error}") from error


def _lines(commands: Iterable[str]) -> Iterator[str]:
    """Commands joined to lines that HAProxy reads whole."""
    line = ""
    for command in commands:
        if line and len(line) + len(command) > MAX_LINE_CHARS:
            yield line
            line = ""
        line += f"{';' if line else ''}{command}"
    if line:
        yield line


def _row(
    backend: str,
    server: str,
    address: str,
    weight: str,
    backup: str,
    status: str,
    current: str,
    queued: str,
    total: str,
    last: str,
) -> ServerRow:
    return ServerRow(
        backend=backend,
        server=server,
        address=address,
        weight=int(weight or 0),
        backup=backup == "1",
        maintenance=status.startswith("MAINT"),
        in_flight=int(current or 0) + int(queued or 0),
        sessions=int(total or 0),
        idle_s=float(last) if int(last or -1) >= 0 else None,
    )
