"""The mark every engine carries in its environment: who started it, for which replica, and how to know it again.

A mark is inherited by what the engine starts, and can be erased by it; a session cannot be left by accident. So a
process is ours if it carries our mark *or* lives in the session or group of a leader we know. Pure functions.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from agent.ledger import Record
from agent.proc import Census, Process
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import Mark

MARKER = b"LLMGW_RECORD="
"""Processes without this in their environment carry no mark."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LEADER_WITHIN_S = 1.0
"""Between the moment written into a mark and the kernel's start of the process that carries it first."""


@dataclass(frozen=True)
class Marked:
    """What a mark says. `record` is complete but for argv and env, which a running engine no longer needs."""

    node: NodeId
    home: str
    mark: Mark
    record: Record


def mark_environment(record: Record, node: NodeId) -> dict[str, str]:
    """The variables that mark a process of `record`."""
    return {
        "LLMGW_INSTALLATION": record.mark.installation,
        "LLMGW_FLEET": record.mark.fleet,
        "LLMGW_REPLICA": record.replica,
        "LLMGW_MARK_EPOCH": str(record.mark.epoch),
        "LLMGW_MARK_SEQ": str(record.mark.seq),
        "LLMGW_NODE": record.node or node,
        "LLMGW_RECORD": _slim(record).model_dump_json(exclude_defaults=True),
    }


def read_mark(environ: bytes) -> Marked | None:
    """The mark in a raw environment (NUL-separated); None if there is none or it is damaged."""
    values = _variables(environ)
    raw = values.get("LLMGW_RECORD")
    if raw is None:
        return None
    try:
        record = Record.model_validate_json(raw)
    except ValidationError:
        return None
    return Marked(node=NodeId(values.get("LLMGW_NODE", "")), home=record.home, mark=record.mark, record=record)


def processes_of(
    record: Record, node: NodeId, census: Census, grouped: frozenset[int] = frozenset()
) -> tuple[Process, ...]:
    """All live processes of a replica: its leader's session and group, whatever carries its mark, and `grouped`, the
    pids of its cgroup."""
    kin = _kin(record, census) | grouped
    kin |= {process.pid for process in census.processes if _carries(process, record, node)}
    return tuple(process for process in census.processes if process.pid in kin)


def marked_records(census: Census, node: NodeId, home: str) -> dict[ReplicaId, Record]:
    """The records that the marks of this agent's processes tell.

    With pid and start time of the leader where that lives; without start time where only others are left of it.
    """
    found: dict[ReplicaId, Record] = {}
    for process in sorted(census.processes, key=lambda process: process.start_ticks):
        marked = read_mark(process.environ) if process.environ else None
        if marked is None or (marked.node, marked.home) != (node, home):
            continue
        leads = _is_leader(process, marked.record)
        if marked.record.replica not in found or (leads and found[marked.record.replica].start_ticks is None):
            identity = {"pid": process.session, "start_ticks": process.start_ticks if leads else None}
            found[marked.record.replica] = marked.record.model_copy(update=identity)
    return found


def _kin(record: Record, census: Census) -> set[int]:
    """Pids in the leader's session or group, unless the leader's pid has since become another process's."""
    if record.pid is None:
        return set()
    at_pid = census.by_pid(record.pid)
    if at_pid is not None and record.start_ticks is not None and at_pid.start_ticks != record.start_ticks:
        return set()  # the kernel reuses a pid only after its whole group and session are gone
    return {process.pid for process in census.processes if record.pid in (process.session, process.group)}


def _carries(process: Process, record: Record, node: NodeId) -> bool:
    marked = read_mark(process.environ) if process.environ else None
    return marked is not None and (marked.node, marked.home, marked.mark.replica, _whose(marked.mark)) == (
        record.node or node,
        record.home,
        record.replica,
        _whose(record.mark),
    )


def _whose(mark: Mark) -> tuple[str, str]:
    return (mark.installation, mark.fleet)


def _is_leader(process: Process, record: Record) -> bool:
    """A session's first process, started when the record was made: a child that made a session is younger."""
    age_s = process.start_ticks / _TICKS_PER_S - (record.started_s or 0.0)
    return process.pid == process.session and abs(age_s) < _LEADER_WITHIN_S


def _slim(record: Record) -> Record:
    launch = record.start.launch.model_copy(update={"argv": record.start.launch.argv[:1], "env": {}, "secret_env": {}})
    return record.model_copy(update={"start": record.start.model_copy(update={"launch": launch})})


def _variables(environ: bytes) -> Mapping[str, str]:
    pairs = (item.partition(b"=") for item in environ.split(b"\0") if item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
