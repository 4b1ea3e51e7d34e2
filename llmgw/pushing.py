"""Which routers have to be told the table now."""

from llmgw import members, stopping
from llmgw.draft import Draft
from llmgw.ids import RouterId
from llmgw.outbox import LOST_AFTER_S, retry_s
from llmgw.world import RouterFacts, SilenceLevel

GIVEN_UP_AFTER = 6
"""An ending fleet does not wait for a router after so many failed calls in a row (some 30 s)."""
AGAIN_S = 1.0
"""A router that keeps losing what it acknowledged is told this often at most."""


def due(draft: Draft, revision: int) -> tuple[RouterId, ...]:
    """Routers behind `revision`, or that hold something else, whose turn it is."""
    world = draft.world
    if world.fenced_by is not None or world.overtaken_by is not None or (world.catalog is None and not world.ending):
        return ()
    found = [id_ for id_ in sorted(members.routers(world)) if _is_due(draft, id_, revision)]
    return tuple(found)


def _is_due(draft: Draft, router: RouterId, revision: int) -> bool:
    facts = draft.world.routers.get(router, RouterFacts())
    if holds(facts, revision):
        return False
    if facts.acked_revision < 0 and draft.world.settling_since_s is not None and draft.hold:
        # It may hold a table of our earlier life: an empty one that comes from not knowing must not replace it.
        draft.wait(f"router/{router}", "hold", f"keeps its present table: {draft.hold}")
        return False
    silence = draft.world.silence.get(f"router/{router}")
    if silence is not None and silence.level is not SilenceLevel.HEARD:
        draft.wait(f"router/{router}", "silent", "is silent; it is told the table as soon as it is heard")
        return False
    if facts.is_open and revision <= facts.asked_revision:
        due_s = (facts.asked_s or 0.0) + LOST_AFTER_S
        draft.wake(due_s)
        return draft.now_s >= due_s
    if facts.failures and facts.failed_s is not None and not facts.is_open:
        heard_again = silence is not None and silence.since_s > facts.failed_s
        due_s = facts.failed_s if heard_again else facts.failed_s + retry_s(facts.failures)
        draft.wait(f"router/{router}", "unreachable", facts.problem)
        draft.wake(due_s)
        return draft.now_s >= due_s
    if revision > facts.asked_revision:
        return True
    due_s = (facts.asked_s or 0.0) + AGAIN_S  # it acknowledged, and holds something else now
    draft.wake(due_s)
    return draft.now_s >= due_s


def all_told(draft: Draft, revision: int) -> bool:
    """Whether no router is left that could still be told; one that keeps failing is given up."""
    routers = stopping.live_routers(draft.world)
    return all(holds(facts, revision) or facts.failures >= GIVEN_UP_AFTER for facts in routers.values())


def holds(facts: RouterFacts, revision: int) -> bool:
    """Whether the router has acknowledged the revision and still says that it holds it."""
    return facts.acked_revision == revision and facts.held_digest == facts.acked_digest
