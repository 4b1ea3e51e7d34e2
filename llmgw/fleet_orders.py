"""Orders about routers and about who commands the fleet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from llmgw import members, router_kinds
from llmgw.catalog import Router, RouterAddress, Text
from llmgw.ids import RouterId
from llmgw.order import Identifier, Order, Problems, with_item, without
from llmgw.sentences import unknown
from llmgw.world import Wishes, World


class RoutersAdd(Order):
    name = "routers-add"
    description = "Add a router beside the catalog; replacing the catalog does not drop it"
    example: ClassVar[Mapping[str, object]] = {"id": "edge-2", "url": "http://edge-2:8081", "kind": "native"}

    id: Identifier
    """Name of the router."""
    url: RouterAddress
    """Where it is told: its base URL, socket or file, as its kind says."""
    kind: Identifier = "native"
    """What it is, such as native, haproxy, envoy or smg."""
    settings: dict[Identifier, Text] = Field(default={})
    """What its kind needs beside the address."""

    def router(self) -> Router:
        return Router.model_validate(self.model_dump())

    def check(self, world: World) -> Problems:
        problems = [str(fault) for fault in router_kinds.faults(self.kind, self.url, self.settings)]
        declared = members.declared_routers(world).get(RouterId(self.id))
        if declared is not None and declared != self.router():
            problems.append(f"router {self.id} is declared in the catalog: change it there")
        others = (r.id for r in members.routers(world).values() if r.url == self.url and r.id != self.id)
        if (other := next(others, None)) is not None:
            problems.append(f"router {other} already has the URL {self.url}: one address is one router")
        return tuple(problems)

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        id_ = RouterId(self.id)
        if id_ in members.declared_routers(world):
            return world.wishes
        return replace(world.wishes, added_routers=with_item(world.wishes.added_routers, id_, self.router()))


class RoutersRemove(Order):
    name = "routers-remove"
    description = "Tell an added router nothing any more; it keeps the table it has"
    example: ClassVar[Mapping[str, object]] = {"router": "edge-2"}

    router: Identifier
    """Id of the router."""

    def check(self, world: World) -> Problems:
        if RouterId(self.router) in members.declared_routers(world):
            return (f"router {self.router} is declared in the catalog: take it out there",)
        return ()

    def warnings(self, world: World) -> Problems:
        known = members.routers(world)
        return () if RouterId(self.router) in known else (unknown("router", self.router, known),)

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        id_ = RouterId(self.router)
        return replace(world.wishes, added_routers=without(world.wishes.added_routers, id_))


class Takeover(Order):
    name = "takeover"
    description = "Command again after another plane did: take a higher epoch than the one that fenced this fleet"
    example: ClassVar[Mapping[str, object]] = {}

    def warnings(self, world: World) -> Problems:
        return (
            () if world.fenced_by is not None else ("nobody else commands this fleet: there is nothing to take over",)
        )

    def wish(self, world: World, now_s: float) -> Wishes:
        if world.fenced_by is None or world.wishes.takeover_s is not None:
            return world.wishes
        return replace(world.wishes, takeover_s=now_s)
