"""Wishes that are done or mean nothing any more are dropped; every other one stays until an operator takes it back."""

from collections.abc import Mapping
from dataclasses import replace

from llmgw import holding, rolling
from llmgw.draft import Draft
from llmgw.ids import ModelName, NodeId
from llmgw.world import Scale, Wishes


def without(draft: Draft) -> Wishes:
    """The wishes that are left after this pass: the very same value when all of them are."""
    world, before = draft.world, draft.world.wishes
    if not (_may_end(before) or before.promoted or before.reverted):
        return before
    left = _left(draft)
    wishes = replace(
        before,
        leaving={k: v for k, v in before.leaving.items() if k not in left},
        tasks=tuple(t for t in before.tasks if t.node not in left),
        scales=_in_time(before.scales, draft.now_s),
        confirmed_lost={k: v for k, v in before.confirmed_lost.items() if not _is_heard(draft, k)},
        trusted={k: s for k, s in before.trusted.items() if _is_needed(draft, k, s)},
        promoted=rolling.tidied(world, before.promoted),
        reverted=rolling.tidied(world, before.reverted),
        takeover_s=None if world.fenced_by is not None else before.takeover_s,
        pause=holding.paused(world, draft.now_s),
    )
    return before if wishes == before else wishes


def _may_end(wishes: Wishes) -> bool:
    """Whether there is any wish of the kinds that end by themselves."""
    kinds = (wishes.leaving, wishes.scales, wishes.confirmed_lost, wishes.trusted)
    return any(kinds) or wishes.takeover_s is not None or wishes.pause is not None


def _left(draft: Draft) -> set[NodeId]:
    """Leaving nodes that hold nothing any more. What is another node's is not held: one machine had two names."""
    leaving = draft.world.wishes.leaving
    held = {part.node for a in draft.assignments.values() for part in a.parts} if leaving else set()
    views = ((id_, draft.survey.of(id_)) for id_ in leaving if id_ not in held)
    return {id_ for id_, view in views if view is None or view.rows.keys() <= draft.assignments.keys()}


def _is_heard(draft: Draft, node: NodeId) -> bool:
    view = draft.survey.of(node)
    return view is not None and view.judges


def _is_needed(draft: Draft, node: NodeId, trusted_s: float) -> bool:
    """Whether there are still crashes that it says are mended."""
    return any(f.node == node and f.at_s <= trusted_s for known in draft.failures.values() for f in known)


def _in_time(scales: Mapping[ModelName, Scale], now_s: float) -> Mapping[ModelName, Scale]:
    return {k: s for k, s in scales.items() if s.until_s is None or now_s < s.until_s}
