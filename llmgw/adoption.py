"""Engines of ours that no assignment claims.

Decided away by us (their token lies within our memory): stopped after a grace. Unknown to our memory: adopted where
the catalog still describes and wants them and their devices are free in our books, else shown. Others' are never
touched.
"""

from llmgw.catalog import Catalog, Model, Profile
from llmgw.claims import by_device, clashes
from llmgw.demand import desired
from llmgw.draft import Draft
from llmgw.ids import DeviceId
from llmgw.launches import fingerprints, launch_of
from llmgw.nodes import NodeView
from llmgw.sentences import are
from llmgw.wire import EngineState, ReplicaReport
from llmgw.world import Assignment, Part

GRACE_S = 10.0


def adopt(draft: Draft) -> None:
    """Claim what was forgotten, and begin the grace of what was decided away."""
    found: set[str] = set()
    claimed: dict[DeviceId, bool] | None = None
    for view in draft.survey.nodes.values():
        if not view.judges or view.rows.keys() <= draft.assignments.keys():
            continue
        for replica in sorted(r for r in view.rows if r not in draft.assignments):
            row = view.rows[replica]
            if claimed is None:
                claimed = by_device(c for a in draft.assignments.values() for p in a.parts for c in p.claims)
            forgotten = _is_forgotten(draft, row)
            if forgotten and _adopt(draft, view, row, claimed):
                continue
            found.add(replica)
            if replica not in draft.unclaimed:
                draft.unclaimed[replica] = -draft.now_s if forgotten else draft.now_s
                draft.event(f"replica/{replica}", f"runs on {view.node.id} and no assignment claims it")
    left = sorted(set(draft.unclaimed) - found)
    heard = bool(left) and all(view.judges for view in draft.survey.nodes.values())
    for replica in left:
        if heard or replica in draft.assignments:
            del draft.unclaimed[replica]


def is_to_stop(draft: Draft, row: ReplicaReport) -> bool:
    """An unclaimed engine that we decided away, whose grace is over."""
    since_s = draft.unclaimed.get(row.replica)
    if since_s is None or since_s < 0:
        return False
    if draft.now_s < since_s + GRACE_S:
        text = f"no assignment claims it: it is stopped {GRACE_S:g} s after it was seen"
        draft.wait(f"replica/{row.replica}", "unclaimed", text, since_s + GRACE_S)
        return False
    return row.state is not EngineState.STOPPING


def _is_forgotten(draft: Draft, row: ReplicaReport) -> bool:
    """Its start is not within our memory: another epoch, or a sequence number we had not reached when it was seen."""
    if (since_s := draft.unclaimed.get(row.replica)) is not None:
        return since_s < 0
    return row.mark.epoch != draft.world.epoch or row.mark.seq > draft.world.seq


def _adopt(draft: Draft, view: NodeView, row: ReplicaReport, claimed: dict[DeviceId, bool]) -> bool:
    described = _described(draft.world.catalog, row)
    devices = {claim.device for claim in row.claims}
    if described is None or (why := _why_not(draft, row, described, clashes(by_device(row.claims), claimed))):
        why = why if described is not None else _undescribed(draft, row)
        draft.wait(f"replica/{row.replica}", "unclaimed", f"{row.model} on {view.node.id}, not in our memory: {why}")
        return False
    catalog, model, profile = described
    kinds = {d.id: d for d in view.seen.inventory.devices} if view.seen else {}
    vendor = next((kinds[d].vendor for d in sorted(devices) if d in kinds), None)
    spec_id, spec = launch_of(catalog, model, profile, vendor)
    if spec is None:
        text = f"{row.model} on {view.node.id}, not in our memory: its engine cannot name devices of {vendor}"
        draft.wait(f"replica/{row.replica}", "unclaimed", text)
        return False
    draft.specs[spec_id] = spec
    claimed |= by_device(row.claims)
    draft.put(
        Assignment(
            replica=row.replica,
            model=model.name,
            profile=profile.name,
            fingerprint=row.fingerprint,
            attempt=row.attempt,
            spec=spec_id,
            parts=(Part(view.node.id, row.claims),),
            boot=view.seen.boot if view.seen else "",
            created_s=draft.now_s,
            adopted=True,
            host_memory_mib=profile.host_memory_mib or 0,
        )
    )
    draft.unclaimed.pop(row.replica, None)
    draft.event(f"replica/{row.replica}", f"adopted on {view.node.id}: {model.name} was running and unknown to us")
    return True


def _described(catalog: Catalog | None, row: ReplicaReport) -> tuple[Catalog, Model, Profile] | None:
    model = None if catalog is None else catalog.model(row.model)
    if catalog is None or model is None:
        return None
    index = fingerprints(catalog).of[model.name].get(row.fingerprint)
    return None if index is None else (catalog, model, model.profiles[index])


def _undescribed(draft: Draft, row: ReplicaReport) -> str:
    if row.model not in draft.models:
        return "the catalog does not name it"
    return "the catalog does not describe it as it runs"


def _why_not(draft: Draft, row: ReplicaReport, described: tuple[Catalog, Model, Profile], taken: set[DeviceId]) -> str:
    """Why an engine that the catalog describes is not adopted; empty when it is."""
    if row.state in (EngineState.FAILED, EngineState.STOPPING):
        return f"it is {row.state}"
    if taken:
        return "its devices are in use in our books"
    wanted = desired(draft.world, described[1], draft.now_s)
    have = sum(1 for a in draft.assignments.values() if a.model == row.model and a.stop is None)
    return "" if have < wanted else f"{are(wanted, 'replica')} enough"
