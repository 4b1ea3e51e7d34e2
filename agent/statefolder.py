"""The agent's folder on disk: held by one agent at a time, made anew when somebody removes it under a running one.

It knows nothing of what is kept in it, but for the names by which its node was ever called.
"""

import fcntl
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO

from llmgw.ids import NodeId

NAMES = "nodes"


class StateInUse(Exception):  # noqa: N818 - told to the operator as it is
    """Another agent runs on the same state folder."""


class StateFolder:
    """`path` must exist. Blocking; also called from threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """That it was removed, for as long as this agent lives: what was kept beside the ledger is lost."""
        self._lock: IO[str] | None = None
        self._turn = threading.Lock()
        self._identity: tuple[int, int] | None = None

    def hold(self) -> None:
        """For this process; the kernel lets go when it ends. Raises StateInUse."""
        self._lock = _lock_folder(self.path)
        self._identity = _identity(self.path)

    def let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def is_lost(self) -> bool:
        """Whether the folder is not the one that is held."""
        return self._identity is not None and _identity(self.path) != self._identity

    def make_anew(self) -> None:
        """A folder at the same place, held. Raises OSError, and StateInUse when another agent was quicker."""
        with self._turn:
            if self.is_lost():
                self._make_anew()

    def _make_anew(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.let_go()
        self.hold()
        self.problem = (
            f"the state folder {self.path} was removed while this agent ran; it was made anew from memory. "
            "Logs of engines that run are lost until they start again"
        )

    def names(self, node: NodeId) -> frozenset[NodeId]:
        """`node`, and every name its node had before: engines started then carry it."""
        file = self.path / NAMES
        with suppress(OSError):
            before = file.read_text().split() if file.exists() else []
            if node not in before:
                file.write_text("\n".join([*before, node]) + "\n")
            return frozenset(map(NodeId, [*before, node]))
        return frozenset({node})


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _lock_folder(folder: Path) -> IO[str]:
    file = (folder / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise StateInUse(
            f"--state-dir {folder}: another agent (pid {holder or 'unknown'}) runs on it; end that one, or name another"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def kept_machine_id(kept: Path, known: str = "") -> str:
    """For a machine that has no id of its own: made once, kept with the state. `known`: what it was before."""
    if not kept.exists():
        kept.write_text((known or uuid.uuid4().hex) + "\n")
    return kept.read_text().strip()
