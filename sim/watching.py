"""What the plane sees of a simulated fleet, and when: all at once, or gathered as the real observer does it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmgw.echo import ECHO_S, is_echo
from llmgw.observation import NodeSeen, Observation, RouterSeen, SilenceSeen
from llmgw.pace import Pace
from llmgw.silence import silence_level
from llmgw.world import SilenceLevel

if TYPE_CHECKING:
    from sim.fleet import SimFleet


@dataclass
class Eyes:
    fleet: "SimFleet"
    heard_s: dict[str, float] = field(default_factory=dict)
    """When each target was last heard."""
    levels: dict[str, SilenceLevel] = field(default_factory=dict)
    """What was told of silence."""
    _told: dict[str, NodeSeen | RouterSeen] = field(default_factory=dict)
    _pace: Pace = field(default_factory=Pace)
    _echo_s: float | None = None
    """Since when echoes wait for news."""
    _next_s: float = math.inf
    """When what was seen is to be told."""

    def forget(self) -> None:
        """A new run: what was told before is told again."""
        self._told, self.levels, self._pace, self._echo_s = {}, {}, Pace(), None

    def skip(self, seconds: float) -> None:
        """The observer's clocks stood still."""
        self.heard_s = {target: at_s + seconds for target, at_s in self.heard_s.items()}

    def moments(self) -> Iterable[float]:
        """When there may be something to tell although nothing else happens."""
        silent = [since_s for target in self.fleet.cut if (since_s := self.heard_s.get(target))]
        return [self._next_s, *(since_s + limit_s for since_s in silent for limit_s in self._limits())]

    def look(self) -> Observation | None:
        """What is new and told now."""
        fleet = self.fleet
        nodes = {f"node/{id_}": n.report() for id_, n in fleet.nodes.items() if self._hears(f"node/{id_}")}
        routers = {f"router/{id_}": r.state() for id_, r in fleet.routers.items() if self._hears(f"router/{id_}")}
        new_nodes = {target: report for target, report in nodes.items() if self._is_news(target, report)}
        new_routers = {target: state for target, state in routers.items() if self._is_news(target, state)}
        silences = tuple(self._silences())
        self._next_s = self._told_s({**new_nodes, **new_routers}, silences)
        if self._next_s > fleet.now_s:
            return None
        self._told |= {**new_nodes, **new_routers}
        self.levels |= {seen.target: seen.level for seen in silences}
        self._pace.take(fleet.now_s)
        self._echo_s, self._next_s = None, math.inf
        new = (tuple(new_nodes.values()), tuple(new_routers.values()))
        return Observation(pool="sim", cursor=0, nodes=new[0], routers=new[1], silence=silences)

    def _told_s(self, new: Mapping[str, NodeSeen | RouterSeen], silences: tuple[SilenceSeen, ...]) -> float:
        """When it is told: news at once after quiet, further ones a little later, and echoes with the next news."""
        if not (new or silences):
            return math.inf
        if self.fleet.eager:
            return self.fleet.now_s
        if silences or not all(is_echo(self._told.get(target), seen) for target, seen in new.items()):
            return self.fleet.now_s + self._pace.wait_s(self.fleet.now_s)
        self._echo_s = self.fleet.now_s if self._echo_s is None else self._echo_s
        return self._echo_s + ECHO_S

    def _hears(self, target: str) -> bool:
        if target in self.fleet.cut:
            return False
        self.heard_s[target] = self.fleet.now_s
        return True

    def _is_news(self, target: str, seen: NodeSeen | RouterSeen) -> bool:
        before = self._told.get(target)
        return before is not seen and before != seen

    def _silences(self) -> Iterable[SilenceSeen]:
        now_s = self.fleet.now_s
        targets = [*(f"node/{n}" for n in self.fleet.nodes), *(f"router/{r}" for r in self.fleet.routers)]
        for target in targets:
            since_s = self.heard_s.setdefault(target, now_s)
            if since_s == now_s and target not in self.levels:
                continue
            others = sum(1 for t in targets if t != target and self.heard_s.get(t, now_s) > since_s)
            level = silence_level(now_s - since_s, others, len(targets) - 1, *self._limits())
            if level is not self.levels.get(target, SilenceLevel.HEARD):
                yield SilenceSeen(target=target, level=level, silent_s=now_s - since_s)

    def _limits(self) -> tuple[float, float]:
        """After how long a silence makes suspect, and lost."""
        catalog = self.fleet.world.catalog
        return (10.0, 60.0) if catalog is None else (catalog.policy.suspect_after_s, catalog.policy.lost_after_s)
