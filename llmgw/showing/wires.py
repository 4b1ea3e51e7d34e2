"""What the plane itself reads by query: the whole router table, and whom to observe. Exact wire values."""

import zlib

from llmgw import members
from llmgw.catalog import Policy
from llmgw.observation import Target, Targets
from llmgw.showing.paging import PAGE_SIZE, View, cut_page
from llmgw.wire import Endpoint, TableModel, Token
from llmgw.world import World

TargetsPage = Targets


MAX_PACKED_BYTES = 1 << 20
"""A payload may have 2 MiB. 8,000 endpoints are less than 100 KB."""


class EndpointsPage(View):
    """A part of the table of `revision`; all parts of one revision together have `digest`."""

    revision: int
    digest: str
    token: Token
    """The newest token that was used. Whoever sends the table takes the token of its own call."""
    models: tuple[TableModel, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    total: int
    """Models and endpoints together."""
    next_page: int | None = None


def endpoints(world: World, page: int = 0, page_size: int = PAGE_SIZE) -> EndpointsPage:
    """The table in force: models by name, then endpoints by id."""
    table = world.table
    items: list[TableModel | Endpoint] = [m for _, m in sorted(table.models.items())]
    items += [e for _, e in sorted(table.endpoints.items())]
    cut = cut_page(items, page, page_size, lambda item: item)
    return EndpointsPage(
        revision=world.table_revision,
        digest=table.digest,
        token=Token(installation=world.installation, fleet=world.fleet, epoch=world.epoch, seq=world.seq),
        models=tuple(item for item in cut.rows if isinstance(item, TableModel)),
        endpoints=tuple(item for item in cut.rows if isinstance(item, Endpoint)),
        total=len(items),
        next_page=cut.next_page,
    )


def packed_table(world: World, most_bytes: int = MAX_PACKED_BYTES) -> bytes:
    """The whole table as one `EndpointsPage`, JSON in zlib: of one revision, however fast they follow each other, and
    dumped once. Empty where it is larger than `most_bytes`: then it is read page by page."""
    table = world.table
    whole = EndpointsPage(
        revision=world.table_revision,
        digest=table.digest,
        token=Token(installation=world.installation, fleet=world.fleet, epoch=world.epoch, seq=world.seq),
        models=tuple(m for _, m in sorted(table.models.items())),
        endpoints=tuple(e for _, e in sorted(table.endpoints.items())),
        total=len(table.models) + len(table.endpoints),
    )
    packed = zlib.compress(whole.model_dump_json(exclude_defaults=True).encode(), 1)
    return packed if len(packed) <= most_bytes else b""


def targets(world: World, revision: int, page: int = 0, page_size: int = PAGE_SIZE) -> TargetsPage:
    """Every node and router to observe, and when their silence counts. `revision` names this set of targets."""
    found = [Target(id=f"node/{n.id}", url=n.url) for _, n in sorted(members.nodes(world).items())]
    found += [
        Target(id=f"router/{r.id}", url=r.url, kind=r.kind, settings=r.settings)
        for _, r in sorted(members.routers(world).items())
    ]
    cut = cut_page(found, page, page_size, lambda target: target)
    policy = Policy() if world.catalog is None else world.catalog.policy
    return TargetsPage(
        revision=revision,
        targets=cut.rows,
        suspect_after_s=policy.suspect_after_s,
        lost_after_s=policy.lost_after_s,
        next_page=cut.next_page,
    )
