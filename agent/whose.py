"""To whom a process on a device belongs: to a replica here, or to somebody else. It ends and judges none."""

from collections.abc import Callable, Collection
from contextlib import suppress

from agent.devices import Whose
from agent.marks import MARKER, read_mark
from agent.proc import PROC, Process, process_at
from llmgw.ids import NodeId


def whose(pid: int, is_a_replicas: Callable[[Process], bool], names: Collection[NodeId]) -> Whose:
    """By what is known of our replicas (sessions, cgroups), else by its mark. `names`: what this node is called."""
    process = process_at(pid)
    if process is None:
        return Whose.UNSEEN
    if is_a_replicas(process):
        return Whose.OURS
    with suppress(OSError):
        environ = (PROC / str(pid) / "environ").read_bytes()
        mark = read_mark(environ) if MARKER in environ else None
        return Whose.OURS if mark is not None and mark.node in names else Whose.FOREIGN
    return Whose.FOREIGN
