"""Routers as rows: which table each has confirmed, and what it cannot express."""

from llmgw import router_kinds
from llmgw.catalog import Router
from llmgw.ids import RouterId
from llmgw.sentences import cut
from llmgw.showing.paging import View
from llmgw.showing.scene import Scene
from llmgw.world import RouterFacts, SilenceLevel


class RouterRow(View):
    id: RouterId
    url: str
    kind: str
    heard: bool | None = None
    """False: silent. None: nothing is known yet."""
    confirmed_revision: int = -1
    """The last table revision it confirmed; -1 = none yet."""
    current: bool = False
    """It confirmed the newest table, and holds it by its own word."""
    confirmed_age_s: float | None = None
    """Seconds since its last confirmation."""
    draining: int = 0
    """Withdrawn endpoints with requests in flight."""
    problem: str = ""
    limits: tuple[str, ...] = ()
    """What of the table its kind cannot express."""


def router_row(scene: Scene, router: Router) -> RouterRow:
    world = scene.world
    facts = world.routers.get(router.id, RouterFacts())
    silence = world.silence.get(f"router/{router.id}")
    heard = None if silence is None else silence.level is SilenceLevel.HEARD
    if heard is None and facts.confirmed_s is not None:
        heard = True
    newest = facts.acked_revision == world.table_revision and facts.held_digest == world.table.digest
    problem = facts.problem or world.troubles.get(f"router/{router.id}", "")
    return RouterRow(
        id=router.id,
        url=router.url,
        kind=router.kind,
        heard=heard,
        confirmed_revision=facts.acked_revision,
        current=newest,
        confirmed_age_s=None if facts.confirmed_s is None else scene.age_s(facts.confirmed_s),
        draining=len(facts.draining),
        problem=cut(problem),
        limits=router_kinds.limits(router.kind, world.table.models.values(), world.table.endpoints.values()),
    )
