"""The weights of this node: what is there and whole, what is being fetched, and what may not be removed.

It looks at the disk in threads and on its own beat; pulls and removals make it look at once.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent.again import KeepAt
from agent.local import Secrets, refuse
from agent.weights.filelists import listed_sources
from agent.weights.finding import find_pulled, places_of, places_used
from agent.weights.hub_cache import repository
from agent.weights.listing import list_weights
from agent.weights.pulls import Around, Pulls, free_bytes, used_percent
from agent.weights.removal import LATE, empty_trash, remove_weights, result_of
from agent.weights.sources import Hub, Source, parse
from agent.weights.uses import Uses, to_collect
from llmgw.wire import CommandResult, LaunchSpec, Outcome, PathOutcome, Pull, RefusalCode, RemoveWeights, WeightsReport

LOOK_S = 30.0
REMOVAL_S = 1.5
"""How long an answer waits for files to be deleted; what takes longer is deleted all the same."""

log = structlog.get_logger("agent")

MakeTask = Callable[[Coroutine[None, None, None], str], asyncio.Task[None]]


@dataclass(frozen=True)
class User:
    """Somebody who needs weights: a replica here."""

    name: str
    launch: LaunchSpec


class Shelf:
    """One per agent. `root` None: nothing is reported, pulled or removed."""

    def __init__(
        self,
        root: Path | None,
        state_dir: Path,
        secrets: Secrets,
        environ: Mapping[str, str],
        make_task: MakeTask,
        keep_at: KeepAt,
        users: Callable[[], Iterable[User]],
        changed: Callable[[tuple[WeightsReport, ...]], None],
        turn: asyncio.Lock,
        limit_percent: int | None = None,
    ) -> None:
        """`turn`: held by whoever starts or removes anything. `limit_percent`: pulled weights go, by last use, while
        the root's disk is fuller than this; None = never."""
        self.root = root
        self._users = users
        self._changed = changed
        self._listed: tuple[WeightsReport, ...] = ()
        self._asked: dict[str, None] = {}
        """Sources that pulls brought: shown as they were asked for."""
        self._make_task = make_task
        self._keep_at = keep_at
        self._turn = turn
        self._limit_percent = limit_percent
        self._kept = Uses(state_dir / "uses.json")
        self._pulled: dict[str, float] = {}
        self._pulls = None if root is None else Pulls(self._around(root, state_dir, secrets, environ))

    async def open(self) -> None:
        """Begin: what an earlier agent left is deleted or gone on with."""
        if self.root is None or self._pulls is None:
            return
        await asyncio.to_thread(empty_trash, self.root)
        await self.look()
        self._pulls.resume()
        self._keep_at(self._keep_looking, "weights")

    def rows(self) -> tuple[WeightsReport, ...]:
        """What the report tells: pulls first, then what is on the disk."""
        pulls = () if self._pulls is None else self._pulls.rows()
        pulled = {row.source for row in pulls}
        in_use = self._in_use() if self._listed else set()
        return (*pulls, *(self._aged(row, in_use) for row in self._listed if row.source not in pulled))

    async def look(self) -> None:
        if self.root is None:
            return
        await asyncio.to_thread(self._kept.note, self._in_use())
        self._pulled = await asyncio.to_thread(listed_sources, self.root)
        self._listed = await asyncio.to_thread(list_weights, self.root, tuple(self._asked))
        self._tell()

    async def collect(self) -> tuple[str, ...]:
        """Remove what nobody has used for longest until the disk is below its limit; the sources that went."""
        gone: list[str] = []
        if self.root is None or self._pulls is None or self._limit_percent is None:
            return ()
        async with self._turn:
            needed = self._in_use() | set(self._pulls.sources())
            for candidate in to_collect(self._pulled, self._kept, needed):
                if used_percent(self.root) <= self._limit_percent:
                    break
                order = RemoveWeights(paths=(candidate.source,))
                used = await asyncio.to_thread(self._used, order)
                done = await asyncio.to_thread(remove_weights, order, self.root, used)
                if done.paths and done.paths[0].outcome == "removed":
                    self._kept.forget(candidate.source)
                    gone.append(candidate.source)
                    log.info("collected", source=candidate.source, idle_s=round(candidate.idle_s), paths=done.paths)
        if gone:
            await self.look()
        return tuple(gone)

    async def pull(self, order: Pull) -> CommandResult:
        """Answers at once; how it goes is told by the rows."""
        if self._pulls is None:
            text = "this node has no weights root to pull into: start the agent with --weights-root"
            refusal = refuse(RefusalCode.UNSUPPORTED, text)
            return CommandResult(subject=order.source, outcome=Outcome.REFUSED, refusal=refusal)
        if await self._is_here(order.source):
            await self.look()
            return CommandResult(subject=order.source, outcome=Outcome.ALREADY)
        return self._pulls.order(order)

    async def remove(self, order: RemoveWeights) -> CommandResult:
        """Remove weights that nobody needs; a pull of them is cancelled first. Deleting may outlast the answer."""
        used = await asyncio.to_thread(self._used, order)
        if not order.dry_run:
            await self._cancel_pulls(order)
        outcomes: dict[str, PathOutcome] = {}
        loop = asyncio.get_running_loop()

        def told(outcome: PathOutcome) -> None:
            loop.call_soon_threadsafe(outcomes.__setitem__, outcome.path, outcome)

        late = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(remove_weights, order, self.root, used, told, late.is_set))
        done, _ = await asyncio.wait([work], timeout=REMOVAL_S)
        late.set()
        if done:
            await self.look()
            return work.result()
        self._make_task(self._look_after(work), "deleting weights")
        waiting = [path for path in dict.fromkeys(order.paths) if path not in outcomes]
        return result_of(
            (*outcomes.values(), *(PathOutcome(path=path, outcome="refused", message=LATE) for path in waiting)), []
        )

    async def _cancel_pulls(self, order: RemoveWeights) -> None:
        """End the pulls of what is to be removed, unless somebody needs it, and give back what they left half done."""
        if self._pulls is None or self.root is None:
            return
        needed = order.keep.keys() | {user.launch.weights for user in self._users()}
        for source in self._pulls.sources():
            if source not in needed and _touches(order.paths, source, self.root):
                await self._pulls.cancel(source)
                await asyncio.to_thread(_drop_parts, source, self.root)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _around(self, root: Path, state_dir: Path, secrets: Secrets, environ: Mapping[str, str]) -> Around:
        return Around(
            root=root,
            kept=state_dir / "pulls.json",
            environ=environ,
            secrets=secrets,
            make_task=self._make_task,
            free_bytes=lambda: free_bytes(root),
            is_whole=self._is_whole,
            changed=self._tell,
            ended=self._arrived,
        )

    def _used(self, order: RemoveWeights) -> dict[Path, str]:
        """Place -> who needs it: replicas that are not proven gone, and what the plane told to keep."""
        if self.root is None:
            return {}
        used: dict[Path, str] = {}
        for source, who in order.keep.items():
            used |= dict.fromkeys(places_of(source, self.root), who)
        for user in self._users():
            used |= dict.fromkeys(places_used(user.launch, self.root), user.name)
        return used

    async def _is_whole(self, source: Source) -> bool:
        found = await asyncio.to_thread(find_pulled, source, self.root)
        return found.place is not None and found.presence.complete

    async def _is_here(self, text: str) -> bool:
        try:
            source = parse(text)
        except ValueError:
            return False
        if not await self._is_whole(source):
            return False
        self._asked[text] = None
        return True

    def _arrived(self, source: str) -> None:
        self._asked[source] = None
        self._make_task(self.look(), "weights")

    def _in_use(self) -> set[str]:
        return {user.launch.weights for user in self._users() if user.launch.weights is not None}

    def _aged(self, row: WeightsReport, in_use: set[str]) -> WeightsReport:
        idle_s = 0.0 if row.source in in_use else self._kept.idle_s(row.source, self._pulled.get(row.source))
        return row if idle_s is None else row.model_copy(update={"idle_s": round(idle_s, 1)})

    def _tell(self) -> None:
        self._changed(self.rows())

    async def _look_after(self, work: asyncio.Task[CommandResult]) -> None:
        await asyncio.wait([work])
        await self.look()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()
            await self.collect()


def _drop_parts(text: str, root: Path) -> None:
    source = parse(text)
    folder = repository(root, source) / "blobs" if isinstance(source, Hub) else (root / source.place).parent
    for path in folder.glob("*.incomplete*"):
        path.unlink(missing_ok=True)


def _touches(paths: Iterable[str], source: str, root: Path) -> bool:
    """Whether removing one of `paths` takes away what a pull of `source` writes to."""
    places = places_of(source, root)
    for path in paths:
        if path == source:
            return True
        given = root / path
        if any(place.is_relative_to(given) or given.is_relative_to(place) for place in places):
            return True
    return False
