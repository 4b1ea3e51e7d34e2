"""What a starting agent has to go on with: the ledger, corrected by what the kernel says. Pure.

A new boot, and another machine, void every replica and port, never the owner. A lost ledger is rebuilt from the marks
of the processes that run; marks of processes that the ledger does not know are added to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.ledger import Ledger, Record
from agent.marks import marked_records
from agent.proc import Census
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import Mark, Token


@dataclass(frozen=True)
class Recovered:
    ledger: Ledger
    rebuilt: bool
    """The ledger was lost and processes of ours run: nothing is obeyed before it was reported."""
    notes: tuple[str, ...] = ()


def recover(
    ledger: Ledger | None,
    census: Census,
    boot_id: str,
    node: NodeId,
    home: str,
    contained: Mapping[ReplicaId, Record] = MappingProxyType({}),
    machine_id: str = "",
    names: Iterable[NodeId] = (),
) -> Recovered:
    """The state to start from. `contained`: records that the labels of running containers tell; `names`: what this
    node was called before."""
    marked = dict(contained)
    for name in (*names, node):
        marked |= marked_records(census, name, home)
    if ledger is None:
        fresh = Ledger(boot_id=boot_id, token=_highest(marked.values()), records=marked)
        lost = f"ledger lost: {len(marked)} replicas rebuilt from the marks of their processes"
        return Recovered(fresh, rebuilt=bool(marked), notes=(lost,) if marked else ())
    if ledger.machine_id and machine_id and ledger.machine_id != machine_id:
        # A cloned disk, or a folder moved: what runs here is known by its marks alone.
        fresh = Ledger(boot_id=boot_id, token=ledger.token, records=marked)
        other = f"the ledger is of machine {ledger.machine_id}, this is {machine_id}: its replicas are not here"
        return Recovered(fresh, rebuilt=bool(marked), notes=(other,))
    if ledger.boot_id != boot_id:
        fresh = Ledger(boot_id=boot_id, token=ledger.token)
        return Recovered(fresh, rebuilt=False, notes=(f"new boot: {len(ledger.records)} replicas are void",))
    unknown = {replica: record for replica, record in marked.items() if replica not in ledger.records}
    records = {
        replica: _with_process(record, marked.get(replica)) for replica, record in ledger.records.items()
    } | unknown
    notes = tuple(f"{replica}: runs, and was not in the ledger" for replica in unknown)
    return Recovered(ledger.model_copy(update={"records": records}), rebuilt=False, notes=notes)


def _with_process(record: Record, marked: Record | None) -> Record:
    """A record whose process was started, but not yet written down, gets it from the mark."""
    if record.pid is not None or marked is None:
        return record
    found = {"pid": marked.pid, "start_ticks": marked.start_ticks, "started_s": marked.started_s}
    return record.model_copy(update=found)


def _highest(records: Iterable[Record]) -> Token | None:
    """The newest token that the marks tell of: the owner, and the least it has said."""
    marks = [record.mark for record in records]
    newest = max(marks, key=_order, default=None)
    if newest is None:
        return None
    return Token(installation=newest.installation, fleet=newest.fleet, epoch=newest.epoch, seq=newest.seq)


def _order(mark: Mark) -> tuple[int, int]:
    return (mark.epoch, mark.seq)
