"""The steps of `llmgw dev --check`, one function each, in the order of the table at the end.

A step answers what it proved, with figures, or raises `StepFailedError` saying what it saw instead.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from temporalio.exceptions import TemporalError

from llmgw.ids import ReplicaId
from llmgw.plan import Judgement
from llmgw.wire import EngineState, ReplicaReport
from workers.devstack import example, traffic
from workers.devstack.example import ALIAS, FIRST, MODELS, SECOND, STORY, Json
from workers.devstack.guide import signal_argv
from workers.devstack.layout import NODES, is_free
from workers.devstack.owned import is_alive
from workers.devstack.parts import ROUTER, WORKER, plain_environ
from workers.devstack.stack import Stack
from workers.devstack.traffic import Answer, Stream

LOOK_S = 0.05
LEAVING = "leaving"
TOKENS, TOKEN_DELAY_S = 100, 0.05
"""The open stream lasts 5 s, many times what withdrawing takes."""
MAX_SHOWN_CHARS = 80
POLICY = {"removal_grace_s": 1.0}


class StepFailedError(Exception):
    """What a step saw instead of what it was to prove."""


@dataclass(slots=True)
class Scene:
    """What the steps share."""

    stack: Stack
    pids: dict[int, str] = field(default_factory=dict)
    """Every engine process seen, and its replica."""
    ports: set[int] = field(default_factory=set)
    """Every engine port seen."""
    nodes: dict[ReplicaId, str] = field(default_factory=dict)
    """Where every replica seen is."""

    @property
    def router(self) -> str:
        return self.stack.layout.url(ROUTER)

    async def ask(self, model: str) -> Answer:
        return await traffic.complete(self.stack.http, self.router, model)

    async def rows(self) -> Mapping[ReplicaId, ReplicaReport]:
        """What the agents say of their replicas now."""
        found: dict[ReplicaId, ReplicaReport] = {}
        for node in NODES:
            rows = await traffic.agent_rows(self.stack.http, self.stack.layout.url(node))
            self.nodes |= dict.fromkeys(rows, node)
            found |= rows
        for row in found.values():
            if row.pid is not None:
                self.pids[row.pid] = row.replica
            if row.port is not None:
                self.ports.add(row.port)
        return found

    async def ready(self, model: str) -> tuple[ReplicaReport, ...]:
        """The model's replicas that are ready by their agents' word."""
        return tuple(r for r in (await self.rows()).values() if r.model == model and r.state is EngineState.READY)


async def until(look: Callable[[], Awaitable[str]], limit_s: float = 20.0) -> int:
    """Look until there is nothing left to say; how many ms that took. StepFailedError with the last word otherwise."""
    began = time.monotonic()
    while seen := await look():
        if time.monotonic() - began > limit_s:
            raise StepFailedError(f"after {limit_s:g} s still: {seen}")
        await asyncio.sleep(LOOK_S)
    return round((time.monotonic() - began) * 1000)


def prove(holds: bool, seen: object) -> None:
    """StepFailedError with what was seen, unless it holds."""
    if not holds:
        raise StepFailedError(f"saw {seen}")


# --- catalogs and how they are sent --------------------------------------------------------------------------------


def _catalog(scene: Scene, *models: Json) -> Json:
    layout, llama = scene.stack.layout, scene.stack.programs.llama
    first = example.model(layout, llama, FIRST, aliases=[ALIAS], replicas=2)
    return example.catalog(layout, llama, [first, *models], **POLICY)


def _tiny(scene: Scene, name: str) -> Json:
    return example.model(scene.stack.layout, scene.stack.programs.llama, name)


def _leaving(scene: Scene) -> Json:
    """On the stub engine, whose pace is known: a stream on it lasts as long as it was told to."""
    made = example.model(scene.stack.layout, None, LEAVING)
    made["profiles"][0]["args"] = ["--token-delay-s", str(TOKEN_DELAY_S)]
    return made


def _broken(scene: Scene) -> Json:
    """Three mistakes in one catalog."""
    wrong = _tiny(scene, SECOND)
    wrong["profiles"][0]["engine"] = "no-such-engine"
    return _catalog(scene, {**wrong, "aliases": [FIRST]}, {**wrong, "replicas": -1})


async def _send(scene: Scene, name: str, content: Json) -> None:
    """Replace the catalog as an operator does: with Temporal's own command line."""
    file = scene.stack.layout.root / f"{name}.json"
    example.write_catalog(file, content)
    argv = signal_argv(scene.stack.layout, scene.stack.programs.temporal, file)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, env=plain_environ(), stdout=pipe, stderr=pipe)
    said, complained = await process.communicate()
    prove(process.returncode == 0, f"`temporal workflow signal` ended with {process.returncode}: {complained.decode()}")
    prove(b"succeeded" in said, f"`temporal workflow signal` said {said.decode()!r}")


async def _answers(scene: Scene, model: str, limit_s: float = 20.0) -> int:
    """Wait until the model answers with its own sentence; how many ms that took."""

    async def look() -> str:
        answer = await scene.ask(model)
        return "" if answer.status == 200 and _is_own(scene, model, answer.text) else f"model {model}: {answer}"

    return await until(look, limit_s)


def _is_own(scene: Scene, model: str, text: str) -> bool:
    """Whether the answer is the model's own: each has a sentence, and the stub names its replica."""
    name = FIRST if model == ALIAS else model
    if scene.stack.programs.llama is None or name not in MODELS:
        return name in text
    return text.startswith(MODELS[name].text)


def _short(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…")


# --- the steps -----------------------------------------------------------------------------------------------------


async def start(scene: Scene) -> str:
    await scene.stack.start()
    return f"logs in {scene.stack.layout.logs}"


async def first_catalog(scene: Scene) -> str:
    verdict = await scene.stack.apply(_catalog(scene, _leaving(scene)))

    async def look() -> str:
        rows = await scene.stack.models()
        return ", ".join(f"{r.name}: {r.ready} of {r.wanted} ready" for r in rows if r.ready < r.wanted)

    took = await until(look, 30.0)
    engines = await scene.rows()
    return f"generation {verdict.generation} in force; {len(engines)} engines ready after {took} ms"


async def by_name(scene: Scene) -> str:
    await _answers(scene, FIRST)
    return f"{FIRST} answers {_short((await scene.ask(FIRST)).text)}"


async def by_alias(scene: Scene) -> str:
    answer = await scene.ask(ALIAS)
    prove(answer.status == 200 and _is_own(scene, ALIAS, answer.text), answer)
    return f"{ALIAS} answers {_short(answer.text)}"


async def streams(scene: Scene) -> str:
    got = Stream()
    await traffic.stream(scene.stack.http, scene.router, FIRST, 32, got)
    prove(got.status == 200 and got.is_done and len(got.pieces) > 1, got)
    prove(_is_own(scene, FIRST, "".join(got.pieces).strip()), "".join(got.pieces))
    return f"{len(got.pieces)} pieces and [DONE]"


async def model_leaves(scene: Scene) -> str:
    """Traffic stops first, then the open stream ends by itself, then the engine is told to stop."""
    before = await scene.ready(LEAVING)
    prove(len(before) == 1, f"{len(before)} ready replicas of {LEAVING}")
    engine, got, http = before[0], Stream(), scene.stack.http
    agent = scene.stack.layout.url(scene.nodes[engine.replica])
    streaming = asyncio.create_task(_timed(traffic.stream(http, scene.router, LEAVING, TOKENS, got)))
    stopping = asyncio.create_task(traffic.first_stop(http, agent, engine.replica))
    try:
        await asyncio.wait_for(got.began.wait(), 10.0)
        began = time.monotonic()
        await _send(scene, "catalog-without-leaving", _catalog(scene, _tiny(scene, SECOND)))
        await until(lambda: _still_served(scene, LEAVING))
        refused = time.monotonic()
        # Asked only after the refusal: an engine that is ready now was not told to stop before it.
        await _prove_untouched(scene, engine, f"after {LEAVING} was refused")
        prove(not streaming.done(), f"the stream was over before its model was refused: {got}")
        ended, told = await streaming, await stopping
    finally:
        streaming.cancel()
        stopping.cancel()
    prove(got.is_done and len(got.pieces) == TOKENS, f"the open stream: {got}; {TOKENS} pieces were asked for")
    await until(lambda: _still_there(scene, engine))
    order = {"refused": refused, "open stream complete": ended, "engine told to stop": told, "gone": time.monotonic()}
    said = ", ".join(f"{what} at {round((at - began) * 1000)} ms" for what, at in order.items())
    prove(list(order.values()) == sorted(order.values()), said)
    return said


async def _timed(work: Awaitable[None]) -> float:
    """Do it; the moment at which it was done."""
    await work
    return time.monotonic()


async def _still_served(scene: Scene, model: str) -> str:
    answer = await traffic.complete(scene.stack.http, scene.router, model, max_tokens=1)
    return "" if answer.status == 404 else f"model {model}: {answer}"


async def _prove_untouched(scene: Scene, engine: ReplicaReport, when: str) -> None:
    row = (await scene.rows()).get(engine.replica)
    prove(row is not None and row.state is EngineState.READY and row.pid == engine.pid, f"{when}: {row}")


async def _still_there(scene: Scene, engine: ReplicaReport) -> str:
    rows = await scene.rows()
    if engine.replica in rows:
        return f"{engine.replica} is {rows[engine.replica].state}"
    return f"process {engine.pid} lives" if engine.pid is not None and _lives(engine.pid) else ""


async def new_model(scene: Scene) -> str:
    took = await _answers(scene, SECOND)
    return f"{SECOND} answers after {took} ms more: {_short((await scene.ask(SECOND)).text)}"


async def broken_catalog(scene: Scene) -> str:
    before, pids = await scene.stack.status(), await _pids(scene)
    await _send(scene, "catalog-broken", _broken(scene))

    async def look() -> str:
        last = (await scene.stack.status()).last_catalog
        return "" if last is not None and last.judgement is Judgement.REFUSED else f"the last catalog is {last}"

    took = await until(look)
    after = await scene.stack.status()
    problems = after.last_catalog.problems if after.last_catalog is not None else ()
    prove(len(problems) >= 3, f"fewer than the three problems sent: {problems}")
    prove((after.generation, after.digest) == (before.generation, before.digest), f"generation {after.generation}")
    prove(after.table_digest == before.table_digest, "another table at the routers")
    prove(await _pids(scene) == pids, "other engine processes than before")
    await by_name(scene)
    return f"refused after {took} ms with {len(problems)} problems, nothing moved; the first: {problems[0]}"


async def worker_killed(scene: Scene) -> str:
    old, acting = scene.stack.supervisor.pid(WORKER), (await scene.stack.status()).acting
    pids = await _pids(scene)
    os.kill(old, signal.SIGKILL)
    began = time.monotonic()
    served = await scene.ask(FIRST)
    prove(served.status == 200, f"with no worker: {served}")
    await _send(scene, "catalog-after-the-kill", _catalog(scene, _tiny(scene, SECOND), _tiny(scene, STORY)))
    await _answers(scene, STORY, 30.0)
    took = _ms_since(began)
    await until(lambda: _acts(scene, acting))
    prove(scene.stack.supervisor.pid(WORKER) != old, "the same worker process")
    now = await _pids(scene)
    prove(pids.items() <= now.items(), "engines were replaced")
    return f"a catalog sent with no worker there was in force and {STORY} served after {took} ms, by another worker"


async def _acts(scene: Scene, old: str) -> str:
    with suppress(TemporalError):
        acting = (await scene.stack.status()).acting
        return "" if acting != old else f"{acting} acts"
    return "no worker answers"


async def engine_killed(scene: Scene) -> str:
    before = await scene.ready(SECOND)
    prove(len(before) == 1 and before[0].pid is not None, f"ready replicas of {SECOND}: {before}")
    killed = before[0].pid or 0
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    await until(lambda: _replaced(scene, killed))
    await _answers(scene, SECOND)
    return f"{SECOND} serves from another process after {_ms_since(began)} ms"


async def _replaced(scene: Scene, killed: int) -> str:
    rows = [row for row in await scene.ready(SECOND) if row.pid != killed]
    return "" if rows else f"no other ready replica of {SECOND}"


async def end(scene: Scene) -> str:
    """Always the last one, whatever failed before."""
    remains = await scene.stack.end()
    prove(not remains.processes and not remains.ports, f"still there: {remains}")
    lives = [f"{replica} (process {pid})" for pid, replica in scene.pids.items() if _lives(pid)]
    prove(not lives, f"engines still there: {', '.join(lives)}")
    taken = sorted(port for port in scene.ports if not is_free(port))
    prove(not taken, f"engine ports still taken: {taken}")
    ports = len(scene.ports) + len(scene.stack.layout.ports.uses)
    return f"of {len(scene.pids)} engines and {ports} ports nothing is left"


async def _pids(scene: Scene) -> dict[ReplicaId, int | None]:
    return {replica: row.pid for replica, row in (await scene.rows()).items()}


def _lives(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


@dataclass(frozen=True, slots=True)
class Step:
    """`limit_s`: past it the step has failed."""

    name: str
    act: Callable[[Scene], Awaitable[str]]
    limit_s: float = 30.0


STEPS: tuple[Step, ...] = (
    Step("start the stack", start, 60.0),
    Step("first catalog", first_catalog, 40.0),
    Step("completion by name", by_name),
    Step("completion by alias", by_alias),
    Step("stream", streams),
    Step("catalog replaced: traffic stops before the engine", model_leaves, 45.0),
    Step("catalog replaced: a model comes", new_model),
    Step("broken catalog refused", broken_catalog),
    Step("worker killed, another takes over", worker_killed, 45.0),
    Step("engine killed and replaced", engine_killed),
)
END = Step("teardown", end, 45.0)
