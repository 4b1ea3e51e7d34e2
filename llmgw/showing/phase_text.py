"""What a phase means right now, in words, and what ends it."""

from collections import Counter

from llmgw.nodes import NodeState
from llmgw.recent import Recent
from llmgw.sentences import brief, counted, lasting
from llmgw.showing.phases import Phase, unfinished
from llmgw.showing.scene import Scene
from llmgw.world import World


def phase_text(scene: Scene, recent: Recent, now: Phase) -> str:
    """What the phase means right now, and what ends it."""
    match now:
        case Phase.ENDING:
            return (
                f"everything is withdrawn, drained and stopped; {counted(len(scene.world.assignments), 'replica')} left"
            )
        case Phase.FENCED:
            return f"{holder(scene.world)}: nothing is commanded. `llmgw takeover` is the only way on"
        case Phase.SAFE_MODE:
            return f"nothing is started or stopped until deciding works again: {recent.safe_mode}"
        case Phase.OVERTAKEN:
            return f"newer commands than ours are remembered out there; {_heard(scene)} before anything is commanded"
        case Phase.PAUSED:
            return _paused(scene)
        case Phase.SETTLING:
            return f"nothing is started or stopped before the nodes are heard; {_heard(scene)}"
        case Phase.NO_CATALOG:
            return "nothing is wanted yet: `llmgw apply FILE` gives the fleet its catalog"
        case Phase.HELD:
            return "a catalog waits for a confirmation, and the one in force goes on"
        case Phase.CONVERGING:
            return "; ".join(unfinished(scene.world, scene.now_s))
        case Phase.DEGRADED:
            return f"it comes no further by itself: {'; '.join(_out_of_order(scene))}"
        case Phase.STEADY:
            return "everything wanted is ready"


def _paused(scene: Scene) -> str:
    pause = scene.world.wishes.pause
    if pause is None:
        return ""
    why = f"{pause.reason}; " if pause.reason else ""
    left_s = scene.left_s(pause.until_s)
    ends = "`llmgw resume` goes on" if left_s is None else f"goes on in {lasting(left_s)}, or with `llmgw resume`"
    return f"{why}nothing is started or stopped for {lasting(scene.age_s(pause.since_s))} already; {ends}"


def _out_of_order(scene: Scene) -> list[str]:
    """What nothing is being done about, in few words, the longest first: each tells the rest where it waits."""
    longest = sorted(scene.world.waiting.values(), key=lambda w: (w.since_s, w.subject))
    said = [f"{w.subject} {brief(w.text, MAX_BRIEF_CHARS)}" for w in longest[:3]]
    return said or list(unfinished(scene.world, scene.now_s))


MAX_BRIEF_CHARS = 80


def _heard(scene: Scene) -> str:
    states = Counter(view.state for view in scene.survey.nodes.values())
    return f"{len(scene.survey.nodes) - states[NodeState.UNKNOWN]} of {len(scene.survey.nodes)} heard"


def holder(world: World) -> str:
    if (by := world.fenced_by) is None:
        return ""
    return f"installation {by.installation} commands fleet {by.fleet} under epoch {by.epoch}"
