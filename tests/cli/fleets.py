"""A fleet without Temporal: real views and real judging over a world of values, and a command line around it."""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import httpx
from typer.testing import CliRunner, Result

from cli.main import app
from cli.outside import Outside, Target
from llmgw import carry, kept_catalogs, views
from llmgw.carry import Seed
from llmgw.catalog import plain
from llmgw.judging import judge
from llmgw.plan import Verdict
from llmgw.recent import Recent
from llmgw.world import Input, InputKind, World
from tests.core.worlds import NOW
from workflows.client import Fleet

QUERIES: dict[str, Callable[..., Any]] = {
    "status": lambda fleet: views.status(fleet.world, fleet.recent, NOW, catalogs_note=fleet.kept.note()),
    "models": lambda fleet, page=0: views.models(fleet.world, NOW, page, 2),
    "replicas": lambda fleet, page=0: views.replicas(fleet.world, NOW, page, 2),
    "nodes": lambda fleet, page=0: views.nodes(fleet.world, NOW, page, 2),
    "endpoints": lambda fleet, page=0: views.endpoints(fleet.world, page, 2),
    "targets": lambda fleet, page=0: views.targets(fleet.world, 1, page, 2),
    "carried": lambda fleet: fleet.carried(),
    "reports": lambda fleet, page=0: views.reports(fleet.world, fleet.moment(), page, 2),
    "events": lambda fleet, after=0: views.events(fleet.recent, NOW, after),
    "weights": lambda fleet, page=0: views.weights(fleet.world, page, 2),
    "history": lambda fleet: views.history(fleet.kept, fleet.world.generation, NOW),
    "catalog": lambda fleet, generation=0, page=0: views.catalog_part(
        fleet.kept, generation or fleet.world.generation, page
    ),
    "explain": lambda fleet, subject="": views.explain(fleet.world, subject, NOW),
}
"""As `workflows.queries` answers them, but with pages of two rows."""


class Answer(dict[str, Any]):
    """Plain JSON, where other queries answer a model."""

    def model_dump(self, **_: object) -> dict[str, Any]:
        return dict(self)


def vars_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class WorldFleet(Fleet):
    """Answers from a world. `later`: the worlds that follow, one at each further look at the status."""

    polls: Mapping[str, float] = MappingProxyType({})
    """Workers that Temporal has seen, and how long ago."""

    def __init__(self, world: World, *later: World, recent: Recent | None = None, name: str = "main") -> None:
        self.client = SimpleNamespace(namespace="default")  # type: ignore[assignment]
        self.name = name
        self.world = world
        self.later = list(later)
        self.recent = recent or Recent()
        self.sent: list[tuple[str, object]] = []
        self.plans: list[object] = []
        """Second arguments of catalogs."""
        self.kept = kept_catalogs.KeptCatalogs()
        self.restless = 0
        """So often the world changes while it is read."""

    def moment(self) -> str:
        self.restless -= 1
        return f"moving {self.restless}" if self.restless > 0 else "still"

    async def workers(self) -> Mapping[str, float]:
        return self.polls

    def carried(self) -> Answer:
        world, raw = self.world, plain(self.world.catalog) if self.world.catalog is not None else None
        names = Seed.model_fields.keys() & World.__dataclass_fields__.keys()
        seed = Seed.model_validate({name: getattr(world, name) for name in names})
        parts = vars_of(carry.pack(world, raw, {}))
        packed = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        return Answer({"moment": self.moment(), "seed": seed.model_dump(mode="json"), "parts": packed})

    async def query(self, name: str, *args: object, answer: type[Any] | None = None) -> Any:
        del answer
        found = QUERIES[name](self, *args).model_dump(mode="json")
        if name == "status" and self.later:
            self.world = self.later.pop(0)
        return found

    async def _update(self, name: str, *args: object) -> Verdict:
        self.sent.append((name, args[0]))
        self.plans += args[1:]
        kind = InputKind.CATALOG if name == "apply-catalog" else InputKind.ORDER
        sent = Input(arrival=len(self.sent), kind=kind, name=name, raw=list(args), at_s=NOW)
        judged = judge(replace(self.world, inbox=(sent,)), NOW)
        self.world = judged.world
        return judged.verdicts[0]


class Raising(WorldFleet):
    """Every question ends in `error`; `polls` are the workers that Temporal has seen."""

    def __init__(self, error: BaseException, polls: dict[str, float] | None = None) -> None:
        super().__init__(World(fleet="main", installation="i", epoch=1, seq=0))
        self.error = error
        self.polls = polls or {}

    async def query(self, name: str, *args: object, answer: type[Any] | None = None) -> Any:
        raise self.error

    async def _update(self, name: str, *args: object) -> Verdict:
        raise self.error


class StartedError(Exception):
    """Instead of becoming another process."""


@dataclass
class Command:
    """The command line with everything outside of it replaced. Time passes only while it pauses."""

    fleet: Fleet | None = None
    agent: Callable[[httpx.Request], httpx.Response] | None = None
    error: BaseException | None = None
    """Raised when the fleet is connected to."""
    pauses: int = 1000
    """After so many pauses somebody presses Ctrl-C."""
    columns: int | None = None
    now_s: float = 0.0
    wall_s: float = 0.0
    """What the clock on the wall says."""
    targets: list[Target] = field(default_factory=list)
    started: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, *args: str, stdin: str | None = None) -> Result:
        environment = {"COLUMNS": None if self.columns is None else str(self.columns), "LLMGW_FLEET": None}
        runner = CliRunner(env={**environment, "LLMGW_TOKEN_FILE": None, "NO_COLOR": None, "FORCE_COLOR": None})
        return runner.invoke(app, list(args), input=stdin, obj=self._outside(), catch_exceptions=False)

    def _outside(self) -> Outside:
        return Outside(
            fleet=self._connect,
            agents=self._agents,
            start=self.started.append,
            pause=self._pause,
            monotonic_s=lambda: self.now_s,
            now_s=lambda: self.wall_s,
        )

    async def _connect(self, target: Target) -> Fleet:
        self.targets.append(target)
        if self.error is not None:
            raise self.error
        assert self.fleet is not None, "this command was not to reach a fleet"
        return self.fleet

    def _agents(self, headers: dict[str, str]) -> httpx.Client:
        assert self.agent is not None, "this command was not to reach an agent"
        return httpx.Client(transport=httpx.MockTransport(self.agent), headers=headers)

    async def _pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses -= 1
        if self.pauses < 0:
            raise KeyboardInterrupt
        await asyncio.sleep(0)
