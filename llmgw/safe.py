"""Safe mode: what is still done when deciding itself fails. Withdraws what is dead; starts and stops nothing."""

from llmgw.ids import ReplicaId
from llmgw.plan import Plan
from llmgw.wire import EngineState
from llmgw.world import SilenceLevel, World

RETRY_S = 10.0


def safe_plan(world: World, now_s: float, problem: str) -> Plan:
    """Withdraw endpoints whose engine is reported dead or whose node is silent; say why nothing else happens."""
    dead = sorted(id_ for id_ in world.table.endpoints if _is_dead(world, id_))
    behind = tuple(sorted(world.routers)) if dead else ()
    return Plan(drop_endpoints=tuple(dead), push=behind, safe_mode=problem, wake_at_s=now_s + RETRY_S)


def _is_dead(world: World, replica: ReplicaId) -> bool:
    assignment = world.assignments.get(replica)
    if assignment is None:
        return False  # not knowing is no reason to withdraw
    silence = world.silence.get(f"node/{assignment.node}")
    if silence is not None and silence.level is not SilenceLevel.HEARD:
        return True
    seen = world.seen.get(assignment.node)
    row = next((r for r in seen.replicas if r.replica == replica), None) if seen else None
    return row is not None and row.state is EngineState.FAILED
