"""The agent's folder on disk: held by one agent at a time, with the id of a machine that has none of its own."""

import fcntl
import os
import uuid
from pathlib import Path
from typing import IO


class StateInUse(Exception):  # noqa: N818 - told to the operator as it is
    """Another agent runs on the same state folder."""


def lock_folder(folder: Path) -> IO[str]:
    """Hold the folder for this process; the kernel lets go when it ends. Raises StateInUse."""
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


def made_machine_id(kept: Path) -> str:
    """For a machine that has no id of its own: made once, kept with the state."""
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex + "\n")
    return kept.read_text().strip()
