"""Orders about nodes: cordon, drain, lost for good, weights on disk, added and removed."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictBool, StrictStr

from llmgw import members, wire
from llmgw.canonical import digest
from llmgw.catalog import DEFAULT_POOL, Node, Seconds, Url
from llmgw.ids import NodeId, PoolName
from llmgw.nodes import NodeState, survey
from llmgw.order import Identifier, Name, Order, Path, Problems, kept, same_end, with_item, without
from llmgw.sentences import unknown
from llmgw.weights import HOW, unusable_source
from llmgw.world import Drain, NodeTask, SilenceLevel, Wishes, World

MAX_PATHS = 100
MAX_TASKS_PER_NODE = 50


class _NodeOrder(Order, ABC):
    node: Identifier
    """Id of the node."""

    @property
    def id(self) -> NodeId:
        return NodeId(self.node)

    def check(self, world: World) -> Problems:
        known = members.nodes(world)
        return () if self.id in known else (unknown("node", self.node, known),)


def _is_asked(world: World, node: NodeId, command: wire.RemoveWeights | wire.Pull) -> bool:
    return any(task.node == node and task.command == command for task in world.wishes.tasks)


def _too_many_tasks(world: World, node: NodeId, command: wire.RemoveWeights | wire.Pull) -> Problems:
    outstanding = sum(1 for task in world.wishes.tasks if task.node == node)
    if outstanding < MAX_TASKS_PER_NODE or _is_asked(world, node, command):
        return ()
    return (f"node {node} has {outstanding} such orders outstanding: wait until it has answered some",)


def _with_task(world: World, name: str, node: NodeId, command: wire.RemoveWeights | wire.Pull, now_s: float) -> Wishes:
    """The wishes with a task for the node, unless it is already asked of it."""
    if _is_asked(world, node, command):
        return world.wishes
    number = digest([node, command.model_dump(mode="json"), now_s], size=6)
    task = NodeTask(f"{name}-{number}", node, command, now_s)
    return replace(world.wishes, tasks=(*world.wishes.tasks, task))


def _usable(source: str) -> str:
    if (reason := unusable_source(source)) is not None:
        raise ValueError(f"cannot be a source of weights: {reason}; {HOW}")
    return source


class Cordon(_NodeOrder):
    name = "cordon"
    description = "Place no new replicas on a node; what runs there stays"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07"}

    def undo(self) -> str:
        return f"`llmgw uncordon {self.node}` takes it back"

    def wish(self, world: World, now_s: float) -> Wishes:
        return replace(world.wishes, cordoned=kept(world.wishes.cordoned, self.id, now_s))


class Uncordon(_NodeOrder):
    name = "uncordon"
    description = "Let a node take replicas again: ends a cordon and a drain, and forgets the crashes there"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07"}

    def wish(self, world: World, now_s: float) -> Wishes:
        wishes = world.wishes
        since_s = wishes.trusted.get(self.id, 0.0)
        crashed = any(f.node == self.id and f.at_s >= since_s for known in world.failures.values() for f in known)
        trusted = with_item(wishes.trusted, self.id, now_s) if crashed else wishes.trusted
        cordoned, drains = without(wishes.cordoned, self.id), without(wishes.drains, self.id)
        return replace(wishes, cordoned=cordoned, drains=drains, trusted=trusted)


class DrainNode(_NodeOrder):
    name = "drain"
    description = "Move everything off a node; with a deadline, stop what could not move by then"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07", "deadline_s": 600.0}

    deadline_s: Seconds | None = None
    """Seconds from now after which the rest is stopped even without a place elsewhere. Absent: it waits."""

    def undo(self) -> str:
        return f"`llmgw uncordon {self.node}` takes it back"

    def wish(self, world: World, now_s: float) -> Wishes:
        deadline = None if self.deadline_s is None else now_s + self.deadline_s
        held = world.wishes.drains.get(self.id)
        if held is not None and same_end(held.deadline_s, deadline):
            return world.wishes
        drain = Drain(now_s if held is None else held.since_s, deadline)
        return replace(world.wishes, drains=with_item(world.wishes.drains, self.id, drain))


class ConfirmLost(_NodeOrder):
    name = "confirm-lost"
    description = "Say that a silent node will not come back by itself: its replicas are placed elsewhere at once"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07"}

    def check(self, world: World) -> Problems:
        if problems := super().check(world):
            return problems
        view = survey(world).of(self.id)
        in_doubt = view is not None and view.state is NodeState.SET_ASIDE
        if members.node_level(world, self.id) is SilenceLevel.HEARD and not in_doubt:
            return (f"node {self.node} answers, so it is not lost: to move its replicas, drain it",)
        return ()

    def wish(self, world: World, now_s: float) -> Wishes:
        return replace(world.wishes, confirmed_lost=kept(world.wishes.confirmed_lost, self.id, now_s))


class NodesConfirm(_NodeOrder):
    name = "nodes-confirm"
    description = "Say that the machine that now answers under a node's name is the one: it is no longer set aside"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07"}

    def check(self, world: World) -> Problems:
        if problems := super().check(world):
            return problems
        view = survey(world).of(self.id)
        if view is None or view.seen is None or not view.seen.machine:
            return (f"node {self.node} has not been heard yet: there is no machine to confirm",)
        if view.state is not NodeState.SET_ASIDE and self.id not in world.wishes.confirmed_machines:
            return (f"node {self.node} is {view.state.replace('_', ' ')}, not set aside: nothing is in doubt",)
        return ()

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        machine = world.seen[self.id].machine
        return replace(world.wishes, confirmed_machines=with_item(world.wishes.confirmed_machines, self.id, machine))


class RemoveWeights(_NodeOrder):
    name = "remove-weights"
    description = "Delete cached weight files below a node's weights root; what a replica or model needs is refused"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07", "paths": ["org/old-model"], "dry_run": True}

    paths: Annotated[tuple[Path, ...], Field(min_length=1, max_length=MAX_PATHS)]
    """Files or folders, relative to the weights root, or sources as the node reports them."""
    dry_run: StrictBool = False
    """Only say what would be removed."""

    def check(self, world: World) -> Problems:
        return (*super().check(world), *_too_many_tasks(world, self.id, self._command()))

    def wish(self, world: World, now_s: float) -> Wishes:
        return _with_task(world, self.name, self.id, self._command(), now_s)

    def _command(self) -> wire.RemoveWeights:
        return wire.RemoveWeights(paths=self.paths, dry_run=self.dry_run)


class PullWeights(_NodeOrder):
    name = "pull"
    description = "Fetch weights into a node's weights root ahead of time; the node's report tells how it goes"
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07", "source": "hf://org/model"}

    source: Annotated[Path, AfterValidator(_usable)]
    """Where they come from: hf://org/repo, hf://org/repo/file@revision, https://host/path or file:///path."""
    secret: Identifier | None = None
    """Name of a secret on the node that holds the token for the hub or server."""

    def check(self, world: World) -> Problems:
        return (*super().check(world), *_too_many_tasks(world, self.id, self._command()))

    def wish(self, world: World, now_s: float) -> Wishes:
        return _with_task(world, self.name, self.id, self._command(), now_s)

    def _command(self) -> wire.Pull:
        return wire.Pull(source=self.source, secret=self.secret)


class NodesAdd(Order):
    name = "nodes-add"
    description = "Add a node beside the catalog; replacing the catalog does not drop it"
    example: ClassVar[Mapping[str, object]] = {"id": "gpu-07", "url": "http://gpu-07:7070", "pool": "default"}

    id: Identifier
    """Name of the node; its agent must say the same."""
    url: Url
    """Base URL of its agent."""
    pool: Identifier = DEFAULT_POOL
    """The pool it belongs to."""
    zone: Annotated[StrictStr, Field(min_length=1, max_length=64)] | None = None
    """Failure domain: rack, room."""
    labels: Annotated[dict[Name, Annotated[StrictStr, Field(max_length=256)]], Field(max_length=32)] = {}  # noqa: RUF012 - pydantic copies it
    """For people and placement rules."""

    def node(self) -> Node:
        zone_and_labels = {"zone": self.zone, "labels": self.labels}
        return Node.model_validate({"id": self.id, "url": self.url, "pool": self.pool, **zone_and_labels})

    def check(self, world: World) -> Problems:
        problems: list[str] = []
        declared = members.declared_nodes(world).get(NodeId(self.id))
        if declared is not None and declared != self.node():
            problems.append(f"node {self.id} is declared in the catalog: change it there")
        others = (n.id for n in members.nodes(world).values() if n.url == self.url and n.id != self.id)
        if (other := next(others, None)) is not None:
            problems.append(f"node {other} already has the URL {self.url}: one agent is one node")
        if world.catalog is not None and PoolName(self.pool) not in (pools := members.pools(world)):
            problems.append(unknown("pool", self.pool, pools) + " (pools are declared in the catalog)")
        return tuple(problems)

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        id_, wishes = NodeId(self.id), world.wishes
        if id_ in members.declared_nodes(world):
            return wishes
        return replace(
            wishes,
            added_nodes=with_item(wishes.added_nodes, id_, self.node()),
            leaving=without(wishes.leaving, id_),
            confirmed_lost=wishes.confirmed_lost if id_ not in wishes.leaving else without(wishes.confirmed_lost, id_),
            drains=wishes.drains if id_ not in wishes.leaving else without(wishes.drains, id_),
        )


class NodesRemove(Order):
    name = "nodes-remove"
    description = (
        "Take out an added node: it is emptied, then forgotten; with force, without waiting for places elsewhere"
    )
    example: ClassVar[Mapping[str, object]] = {"node": "gpu-07", "force": False}

    node: Identifier
    """Id of the node."""
    force: StrictBool = False
    """Stop what runs there at once; a silent node counts as lost and is settled if it ever returns."""

    def check(self, world: World) -> Problems:
        if NodeId(self.node) in members.declared_nodes(world):
            return (f"node {self.node} is declared in the catalog: take it out there",)
        return ()

    def warnings(self, world: World) -> Problems:
        known = members.nodes(world)
        return () if NodeId(self.node) in known else (unknown("node", self.node, known),)

    def wish(self, world: World, now_s: float) -> Wishes:
        id_ = NodeId(self.node)
        node = world.wishes.added_nodes.get(id_)
        wishes = world.wishes if node is None else leave(world, node)
        return self._forced(world, wishes, id_, now_s) if self.force and id_ in wishes.leaving else wishes

    def _forced(self, world: World, wishes: Wishes, id_: NodeId, now_s: float) -> Wishes:
        """A node that answers is emptied with a deadline that is over; any other is given up."""
        if members.node_level(world, id_) is SilenceLevel.HEARD:
            held = wishes.drains.get(id_)
            over = held is not None and held.deadline_s is not None and held.deadline_s <= now_s
            return wishes if over else replace(wishes, drains=with_item(wishes.drains, id_, Drain(now_s, now_s)))
        return replace(wishes, confirmed_lost=kept(wishes.confirmed_lost, id_, now_s))


def leave(world: World, node: Node) -> Wishes:
    """The wishes with `node` gone from the added ones: leaving while it holds anything, else without a trace."""
    wishes = replace(
        world.wishes,
        added_nodes=without(world.wishes.added_nodes, node.id),
        cordoned=without(world.wishes.cordoned, node.id),
        drains=without(world.wishes.drains, node.id),
        confirmed_machines=without(world.wishes.confirmed_machines, node.id),
    )
    if members.holds_anything(world, node.id):
        return replace(wishes, leaving=with_item(wishes.leaving, node.id, node))
    tasks = tuple(task for task in wishes.tasks if task.node != node.id)
    return replace(wishes, confirmed_lost=without(wishes.confirmed_lost, node.id), tasks=tasks)
