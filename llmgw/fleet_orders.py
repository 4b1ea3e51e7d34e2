"""Orders about routers and about who commands the fleet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictStr

from llmgw import members, router_kinds
from llmgw.catalog import Router, RouterAddress, Text
from llmgw.ids import RouterId
from llmgw.order import Identifier, Limit, Order, Problems, printable, same_end, with_item, without
from llmgw.sentences import unknown
from llmgw.world import Pause, Wishes, World


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


class PauseFleet(Order):
    name = "pause"
    description = "Watch and publish, but start and stop nothing: for work on the fleet by hand"
    example: ClassVar[Mapping[str, object]] = {"reason": "rack 3 is being moved", "for_s": 3600.0}

    reason: Annotated[StrictStr, Field(max_length=160), AfterValidator(printable)] = ""
    """Why, for whoever looks next."""
    for_s: Limit | None = None
    """Seconds from now for which it holds. Absent: until `resume`."""

    def undo(self) -> str:
        return "`llmgw resume` takes it back"

    def warnings(self, world: World) -> Problems:
        return ("the fleet is ending: that goes on",) if world.ending else ()

    def wish(self, world: World, now_s: float) -> Wishes:
        until_s = None if self.for_s is None else now_s + self.for_s
        held = world.wishes.pause
        if held is not None and held.reason == self.reason and same_end(held.until_s, until_s):
            return world.wishes
        since_s = now_s if held is None else held.since_s
        return replace(world.wishes, pause=Pause(since_s, until_s, self.reason))


class Resume(Order):
    name = "resume"
    description = "Go on after a pause"
    example: ClassVar[Mapping[str, object]] = {}

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        return replace(world.wishes, pause=None)


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
