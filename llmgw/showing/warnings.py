"""What needs a person, though the fleet goes on."""

from collections.abc import Sequence

from llmgw import members
from llmgw.nodes import NodeState
from llmgw.recent import Recent
from llmgw.sentences import lasting, names_shown
from llmgw.showing.scene import Scene
from llmgw.world import SilenceLevel, Waiting

LONG_WAIT_S = 3600.0


def warnings(scene: Scene, recent: Recent, longest: Sequence[Waiting]) -> list[str]:
    """Sentences, none for a fleet in order. `longest`: all that waits, the longest first."""
    doubtful = [v for v in scene.survey.nodes.values() if v.state in (NodeState.SET_ASIDE, NodeState.FOREIGN)]
    silent = [v.node.id for v in scene.survey.nodes.values() if v.is_silent]
    back = sorted(w.subject for w in longest if w.code == "rolled_back")
    given_up = sorted(w.subject for w in longest if w.code == "failed")
    overdue = sorted(w.subject.partition("/")[2] for w in longest if w.code == "wake_overdue")
    said = [
        scene.survey.brake,
        *(f"node {v.node.id} is {v.state.replace('_', ' ')}: {v.note}" for v in doubtful),
        f"silent: {names_shown(silent)}" if silent else "",
        f"not as the catalog has it, the last good version runs: {names_shown(back)}" if back else "",
        *_left_out(scene),
        f"given up after repeated failures: {names_shown(given_up)}" if given_up else "",
        f"asked for and still not ready: {names_shown(overdue)}" if overdue else "",
        *(f"carried {what} could not be read and is set aside: {why}" for what, why in recent.unreadable.items()),
        *(
            f"the carried record of {name} could not be read: {record.problem}"
            for name, record in sorted(scene.world.unreadable.items())
        ),
        *(f"not carried over, for its size: {text}" for text in recent.shed),
        *_quarantined(scene),
        *_complaints(scene),
    ]
    if longest and (age_s := scene.age_s(longest[0].since_s)) > LONG_WAIT_S:
        said.append(f"{longest[0].subject} has been waiting for {lasting(age_s)}: `llmgw explain {longest[0].subject}`")
    return [text for text in said if text]


def _left_out(scene: Scene) -> list[str]:
    """Routers whose silence has lasted beyond the limit: stops do not wait for their word."""
    silent = sorted(
        id_
        for id_ in members.routers(scene.world)
        if (s := scene.world.silence.get(f"router/{id_}")) is not None and s.level is not SilenceLevel.HEARD
    )
    return [f"silent routers are left out, stops do not wait for them: {names_shown(silent)}"] if silent else []


def _quarantined(scene: Scene) -> list[str]:
    seen = [view.seen for view in scene.survey.nodes.values() if view.seen is not None]
    return [f"node {s.node} keeps device {d} out of use: {why}" for s in seen for d, why in s.quarantined.items()]


def _complaints(scene: Scene) -> list[str]:
    """What agents say is wrong with their own nodes; many that say the same are one line."""
    said: dict[str, list[str]] = {}
    for view in scene.survey.nodes.values():
        for problem in view.seen.problems if view.seen is not None else ():
            said.setdefault(problem, []).append(view.node.id)
    return [f"{'nodes' if len(ids) > 1 else 'node'} {names_shown(ids)}: {problem}" for problem, ids in said.items()]
