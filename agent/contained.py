"""One replica's container: begun, taken up again when its client has died, cleared away, and what is left of it.

It knows the tool and the replica's record; `agent.replica` says when. A tool that does not answer leaves the container
in doubt, and in doubt it is still there.
"""

from collections.abc import Mapping
from pathlib import Path

from agent import engines
from agent.container_user import Standing
from agent.containers import (
    ContainerTool,
    Found,
    Mount,
    ToolFailed,
    attach_invocation,
    numbered_anew,
    run_invocation,
)
from agent.devices import Known
from agent.launch import Invocation
from agent.ledger import Record
from agent.proc import Process
from llmgw.ids import NodeId


class Contained:
    def __init__(self, tool: ContainerTool, node: NodeId, log: Path) -> None:
        self._tool = tool
        self._node = node
        self._log = log
        self._who = Standing()
        """As `clear` found it last."""

    def invocation(self, inside: Invocation, record: Record, known: Known, mounts: tuple[Mount, ...]) -> Invocation:
        """The client's command for what is to run within."""
        spec = record.start.launch.container
        assert spec is not None  # noqa: S101 - only replicas with one have a container
        by_id = {device.id: device for device in known.inventory.devices}
        claimed = tuple(
            (by_id[claim.device], known.ordinals.get(claim.device, by_id[claim.device].index))
            for claim in record.start.claims
            if claim.device in by_id
        )
        selection = record.start.launch.devices
        variables = selection.variables if selection is not None and selection.naming == "index" else ()
        env = numbered_anew(inside.env, variables, tuple(device for device, _ in claimed))
        shown = Invocation(argv=inside.argv, env=env)
        return run_invocation(
            self._tool.path, shown, spec, record, self._node, claimed, mounts, self._client, self._who
        )

    async def attach(self, record: Record) -> engines.Engine | None:
        """A leader for the replica's container if that runs; None if it does not, or nothing is known of it."""
        try:
            running = [found for found in await self._tool.found(record.replica) if found.runs]
        except ToolFailed:
            return None
        if not running:
            return None
        return engines.start(
            self._tool.path, attach_invocation(self._tool.path, running[0].name, self._client), self._log
        )

    async def clear(self, record: Record) -> str:
        """Remove what earlier attempts left under the replica's labels, and ask as whom the next is to run; why that
        failed, or empty."""
        try:
            self._who = await self._tool.standing()
        except ToolFailed as failed:
            return str(failed)
        left = await self.left(record, force=True)
        return f"cannot clear {left[0].name}" if left else ""

    async def left(self, record: Record, *, force: bool) -> tuple[Process, ...]:
        """What is left of it, shown as processes; what has ended is removed, and with `force` what runs as well."""
        try:
            found = await self._tool.found(record.replica)
            ended = [one.name for one in found if force or not one.runs]
            if ended:
                await self._tool.remove(ended)
                found = await self._tool.found(record.replica)
        except ToolFailed as failed:
            return (_shown(0, f"container, in doubt: {failed}"),)
        return tuple(_as_process(one) for one in found)

    async def why_ended(self, record: Record) -> str:
        """What is added to the end of a container; empty when the tool tells nothing more of it."""
        try:
            found = await self._tool.found(record.replica)
        except ToolFailed:
            return ""
        return ": out of memory (the kernel ended it)" if any(one.out_of_memory for one in found) else ""

    @property
    def _client(self) -> Mapping[str, str]:
        return self._tool.environ


def _as_process(found: Found) -> Process:
    return _shown(found.pid if found.runs else 0, f"container {found.name}")


def _shown(pid: int, name: str) -> Process:
    return Process(pid=pid, group=0, session=0, start_ticks=0, alive=True, name=name)
