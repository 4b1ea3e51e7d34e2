"""When the plane watches and does nothing: settling, paused, fenced by another plane, or overtaken by itself."""

from llmgw.nodes import Survey
from llmgw.world import Pause, World

JUMP = 1000
"""How far past an unknown future of ours the sequence numbers go on."""


def settled(world: World, survey: Survey, now_s: float) -> bool:
    """Every known node was heard or is silent for good, or the window is over. False where none is open."""
    if world.settling_since_s is None:
        return False
    return (survey.all_heard() and world.catalog is not None) or now_s >= settle_until_s(world)


def settle_until_s(world: World) -> float:
    limit_s = world.catalog.policy.settle_s if world.catalog is not None else 60.0
    return (world.settling_since_s or 0.0) + limit_s


def paused(world: World, now_s: float) -> Pause | None:
    """The pause in force. The end of a fleet is an order of its own, and later: no pause holds it up."""
    pause = world.wishes.pause
    if pause is None or world.ending or (pause.until_s is not None and now_s >= pause.until_s):
        return None
    return pause


def reason(world: World, survey: Survey, now_s: float) -> str:
    """Why nothing is started and no stop commanded; empty when the plane acts."""
    if world.fenced_by is not None:
        holder = world.fenced_by
        who = f"installation {holder.installation}, epoch {holder.epoch}"
        return f"another plane commands this fleet ({who}); `llmgw takeover` is the only way on"
    if world.overtaken_by is not None:
        return "newer commands than ours were seen (a reset or a restored backup): waiting to hear every node first"
    if (pause := paused(world, now_s)) is not None:
        why = f" ({pause.reason})" if pause.reason else ""
        return f"paused by an operator{why}: `llmgw resume` goes on"
    if world.settling_since_s is not None and not settled(world, survey, now_s):
        return "settling: waiting to hear every node first"
    return ""
