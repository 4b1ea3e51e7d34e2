"""Nodes that are being emptied, and how far they are."""

from llmgw.ids import NodeId
from llmgw.nodes import NodeView
from llmgw.sentences import counted, cut, lasting, names_shown
from llmgw.showing.paging import View
from llmgw.showing.scene import Scene


class DrainRow(View):
    """A node that is being emptied."""

    node: NodeId
    age_s: float
    """Since the order; 0 for a node that was removed and leaves."""
    left: int
    """Replicas that are still on it."""
    text: str
    """What is left, and what becomes of it."""
    left_s: float | None = None
    """Until what finds no place elsewhere is stopped; None: it stays, or the time is over."""


def drains(scene: Scene) -> tuple[DrainRow, ...]:
    emptied = [v for v in scene.survey.nodes.values() if v.drain is not None or v.leaving]
    rows = (_drain(scene, view) for view in emptied)
    return tuple(sorted(rows, key=lambda row: (-row.age_s, row.node)))


def _drain(scene: Scene, view: NodeView) -> DrainRow:
    mine, drain = scene.by_node.get(view.node.id, ()), view.drain
    names = names_shown([a.replica for a in mine])
    left_s = None if drain is None else scene.left_s(drain.deadline_s)
    if not mine:
        text = "nothing is left on it"
    elif drain is None or drain.deadline_s is None:
        text = f"{counted(len(mine), 'replica')} left ({names}); what finds no place elsewhere stays"
    elif left_s is None:
        text = f"{counted(len(mine), 'replica')} left ({names}); its deadline is over, so they are stopped"
    else:
        end = f"what finds no place elsewhere is stopped in {lasting(left_s)}"
        text = f"{counted(len(mine), 'replica')} left ({names}); {end}"
    age_s = 0.0 if drain is None else scene.age_s(drain.since_s)
    return DrainRow(node=view.node.id, age_s=age_s, left=len(mine), text=cut(text), left_s=left_s)
