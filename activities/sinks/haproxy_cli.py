"""HAProxy's master socket: one command per connection, and what its answers mean.

`@1` speaks to the process in charge, `@!PID` to a former one that still ends its streams. Source: HAProxy 2.6
management guide, chapters 9.3 and 9.4; what is not written there was measured with 2.6.12.
"""

import asyncio
import csv
import io
from dataclasses import dataclass
from pathlib import Path

from activities.sinks.sink import RouterError

ANSWER_LIMIT_S = 2.0
CURRENT = "@1"


@dataclass(frozen=True, slots=True)
class Processes:
    """The master, the worker in charge (None: there is none), and former workers that still end their streams."""

    master: int
    worker: int | None
    former: tuple[int, ...]


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

    async def tell(self, command: str, *accepted: str) -> str:
        """Tell the worker in charge. `RouterError` for any answer that is neither empty nor begins as `accepted`."""
        answer = await self.ask(f"{CURRENT} {command}")
        if answer and not answer.startswith(accepted or ("\0",)):
            raise RouterError(f"HAProxy refuses `{command[:60]}`: {answer.splitlines()[0]}")
        return answer

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
        return Processes(masters[0], current, former)

    async def servers(self, process: str = CURRENT) -> list[ServerRow]:
        """All servers of all backends."""
        answer = await self.ask(f"{process} show stat -1 4 -1")
        return _rows(answer)

    async def backends(self) -> frozenset[str]:
        """Names of all backends that the worker in charge knows."""
        answer = await self.ask(f"{CURRENT} show backend")
        return frozenset(line.strip() for line in answer.splitlines() if line and not line.startswith("#"))

    async def map_entries(self, path: Path) -> dict[str, str]:
        """A map as the worker in charge holds it; empty when it holds none of that name."""
        answer = await self.ask(f"{CURRENT} show map {path}")
        rows = (line.split(None, 2) for line in answer.splitlines() if line.startswith("0x"))
        return {row[1]: row[2] for row in rows if len(row) == 3}


def _rows(answer: str) -> list[ServerRow]:
    if not answer.startswith("# "):
        raise RouterError(f"HAProxy tells no statistics: {answer.splitlines()[0] if answer else 'no answer'}")
    return [
        ServerRow(
            backend=row["pxname"],
            server=row["svname"],
            address=row["addr"],
            weight=int(row["uweight"] or 0),
            backup=row["bck"] == "1",
            maintenance=row["status"].startswith("MAINT"),
            in_flight=int(row["scur"] or 0) + int(row["qcur"] or 0),
            sessions=int(row["stot"] or 0),
            idle_s=float(row["lastsess"]) if int(row["lastsess"] or -1) >= 0 else None,
        )
        for row in csv.DictReader(io.StringIO(answer.removeprefix("# ")))
    ]
