"""Reasons that are not told where a thing is decided: nodes in doubt, the brake, held catalogs, stops under way."""

from llmgw import waking
from llmgw.draft import Draft
from llmgw.nodes import NodeState
from llmgw.world import SilenceLevel

_CODES = {
    NodeState.SET_ASIDE: "set_aside",
    NodeState.FOREIGN: "foreign",
    NodeState.SUSPECT: "suspect",
    NodeState.LOST: "lost",
    NodeState.UNKNOWN: "not_heard",
}


def tell(draft: Draft) -> None:
    """Fill in what an operator has to know and no step has said."""
    for id_, view in draft.survey.nodes.items():
        if view.state in _CODES:
            draft.wait(f"node/{id_}", _CODES[view.state], view.note)
        elif (call := draft.world.calls.get(id_)) is not None and call.failures:
            draft.wait(f"node/{id_}", "unreachable", call.problem)
        elif view.seen is not None and view.seen.quarantined:
            said = "; ".join(f"{device}: {why}" for device, why in sorted(view.seen.quarantined.items()))
            draft.wait(f"node/{id_}", "quarantined", f"devices out of use: {said}")
    if draft.survey.brake:
        draft.wait("fleet", "brake", draft.survey.brake)
    elif draft.hold:
        draft.wait("fleet", "hold", draft.hold)
    elif draft.world.held is not None:
        draft.wait("fleet", "held", draft.world.held.text)
    waking.tell_overdue(draft)
    _level_events(draft)


def _level_events(draft: Draft) -> None:
    """A node that falls silent or comes back is news once: when its waiting entry comes or goes."""
    for id_, view in draft.survey.nodes.items():
        before = draft.world.waiting.get(f"node/{id_}")
        silent_before = before is not None and before.code in ("suspect", "lost")
        if view.is_silent and (before is None or before.code != _CODES[view.state]):
            draft.event(f"node/{id_}", f"is {view.state}: {view.note}")
        elif silent_before and view.state is NodeState.HEALTHY:
            draft.event(f"node/{id_}", "is heard again")
    for target, silence in sorted(draft.world.silence.items()):
        if target.startswith("router/") and silence.level is not SilenceLevel.HEARD:
            draft.wait(target, "silent", "is silent; nothing waits for it")
