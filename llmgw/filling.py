"""Filling what models lack: models by priority, profiles in order, failed attempts at their time, places by fit."""

import re
from dataclasses import replace

from llmgw import attempts, demand, placement
from llmgw.catalog import Model, Profile
from llmgw.demand import Demand
from llmgw.draft import Draft, by_model
from llmgw.fingerprint import fingerprint
from llmgw.ids import Fingerprint, NodeId, ReplicaId
from llmgw.launches import launch_of
from llmgw.placement import Ground, NoSpot, Spot
from llmgw.world import Assignment, Failure, Part, StopCause

MAX_STARTS = 150
"""New assignments in one plan; the rest follow in the next."""


def fill(draft: Draft) -> None:
    """Judge every model's replicas and place what is missing, the highest priority first."""
    catalog = draft.world.catalog
    models = () if catalog is None or draft.world.ending else catalog.models
    groups = by_model(draft.sorted_assignments())
    _remove(draft, {m.name for m in models})
    started = 0
    for model in sorted(models, key=lambda m: (-m.priority, m.name)):
        alive = [a for a in groups.get(model.name, ()) if not (a.stop is not None and a.stop.commanded)]
        if draft.hold:
            _hold(draft, model, alive)
            continue
        lacking = demand.assess(draft, model, alive)
        for _ in range(lacking.to_place):
            if started >= MAX_STARTS:
                draft.more = True
                break
            if not _place_one(draft, model, lacking):
                break
            started += 1
        demand.drop_lost(draft, model)


def _remove(draft: Draft, wanted: set[str]) -> None:
    for assignment in draft.sorted_assignments():
        if assignment.model in wanted:
            continue
        if draft.world.ending:
            draft.want_stop(assignment, StopCause.FLEET_ENDS, "the fleet ends")
        elif draft.world.catalog is not None:
            draft.want_stop(assignment, StopCause.REMOVED, f"{assignment.model} left the catalog")


def _hold(draft: Draft, model: Model, alive: list[Assignment]) -> None:
    """While the plane holds, nothing is placed or given up; a model that is back takes its replicas back."""
    for assignment in alive:
        if assignment.stop is not None and assignment.stop.cause is StopCause.REMOVED:
            draft.take_back(assignment)
    lacking = demand.desired(draft.world, model, draft.now_s) - len(alive)
    if lacking > 0:
        draft.wait(f"model/{model.name}", "hold", f"lacks {lacking}: {draft.hold}")


def _place_one(draft: Draft, model: Model, lacking: Demand) -> bool:
    """Place one more replica; False when it has to wait (the reason is told)."""
    failures = attempts.counted(draft.world, model, draft.failures.get(model.name, ()))
    due = attempts.open_failures(failures)
    if due and attempts.due_s(due[0]) > draft.now_s:
        _backing_off(draft, model, due[0])
        return False
    found = _search(draft, model, failures)
    if isinstance(found, str):
        draft.wait(f"model/{model.name}", _code(found), found)
        if lacking.movers and lacking.urgent == 0:
            demand.stop_first(draft, lacking)
        return False
    profile, print_, spot = found
    _assign(draft, model, profile, print_, spot, due[0] if due else None)
    return True


def _backing_off(draft: Draft, model: Model, failure: Failure) -> None:
    due_s = attempts.due_s(failure)
    last = f"; last log line: {failure.log_tail[-1]}" if failure.log_tail else ""
    text = f"attempt {failure.attempt} failed on {failure.node}: {failure.text}{last}"
    draft.wait(f"model/{model.name}", "backing_off", text, due_s)


GIVEN_UP = "given up: "


def _code(text: str) -> str:
    return "failed" if text.startswith(GIVEN_UP) else "no_place"


def _search(draft: Draft, model: Model, failures: tuple[Failure, ...]) -> tuple[Profile, Fingerprint, Spot] | str:
    """The first profile with a spot; where only a spot being released is found, a later profile with a free one wins
    nothing: preference counts more than a short wait. In words when there is none."""
    catalog = draft.world.catalog
    if catalog is None:
        return "no catalog"
    ground = Ground.of(draft)
    there = placement.hosts(draft.assignments.values(), model.name)
    avoid: frozenset[NodeId] = frozenset(f.node for f in failures)
    words: list[str] = []
    for profile in model.profiles:
        print_ = fingerprint(model, profile, catalog)
        lost = attempts.given_up(failures, print_, catalog.policy.max_attempts)
        if lost is not None:
            last = f"; last log line: {lost.log_tail[-1]}" if lost.log_tail else ""
            words.append(f"{GIVEN_UP}{profile.name} failed {lost.attempt} times in a row, last: {lost.text}{last}")
            continue
        spot = placement.find(ground, profile, models_there=there, avoid=avoid)
        if isinstance(spot, NoSpot):
            words.append(f"{profile.name} {spot.text}")
        elif launch_of(catalog, model, profile, spot.vendor)[1] is None:
            words.append(f"{profile.name}: engine {profile.engine} cannot name devices of vendor {spot.vendor}")
        else:
            return profile, print_, spot
    return ". ".join(words)


def _assign(
    draft: Draft, model: Model, profile: Profile, print_: Fingerprint, spot: Spot, follows: Failure | None
) -> None:
    catalog = draft.world.catalog
    if catalog is None:
        return
    spec_id, spec = launch_of(catalog, model, profile, spot.vendor)
    if spec is None or spot.view.seen is None:
        return
    draft.specs[spec_id] = spec
    attempt = 1
    if follows is not None:
        attempt = follows.attempt + 1 if follows.fingerprint == print_ else 1
        known = draft.failures.get(model.name, ())
        draft.set_failures(model.name, tuple(_replaced(f) if f == follows else f for f in known))
    replica = _new_id(draft, model)
    draft.put(
        Assignment(
            replica=replica,
            model=model.name,
            profile=profile.name,
            fingerprint=print_,
            attempt=attempt,
            spec=spec_id,
            parts=(Part(spot.view.node.id, spot.claims),),
            boot=spot.view.seen.boot,
            created_s=draft.now_s,
            host_memory_mib=profile.host_memory_mib or 0,
        )
    )
    devices = f" on {len(spot.claims)} device{'s' * (len(spot.claims) != 1)}" if spot.claims else ""
    draft.event(f"replica/{replica}", f"{model.name}/{profile.name} goes to {spot.view.node.id}{devices}")


def _replaced(failure: Failure) -> Failure:
    return replace(failure, replaced=True)


def _new_id(draft: Draft, model: Model) -> ReplicaId:
    """`slug-number`: safe in paths and labels, unique for ever since the number is never used again."""
    slug = re.sub(r"[^a-z0-9]+", "-", model.name.casefold()).strip("-")[:40].strip("-") or "model"
    number = draft.next_replica
    draft.next_replica += 1
    return ReplicaId(f"{slug}-{_base36(number)}")


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while True:
        number, rest = divmod(number, 36)
        text = digits[rest] + text
        if number == 0:
            return text
