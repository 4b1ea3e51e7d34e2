"""Known faults of other systems as scenes: real Temporal, worker, agents, routers and engines, asked as clients ask."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.house import House, house

pytestmark = pytest.mark.real

LIMIT_S = 90.0


def stub(name: str, replicas: int, *args: str, **profile: object) -> dict[str, object]:
    row = {"name": "p", "engine": "stub", "args": ["--token-delay-s", "0.02", *args], **profile}
    return {"name": name, "aliases": [f"{name}-alias"], "replicas": replicas, "profiles": [row]}


async def ask(home: House, router: str, model: str, tokens: int = 2) -> tuple[int, str, str]:
    """Status, the replica or the error's code, and the text."""
    body = {"model": model, "max_tokens": tokens}
    async with home.http.post(f"{home.url(router)}/v1/chat/completions", json=body) as answer:
        found = await answer.json()
        if answer.status == 200:
            return 200, answer.headers["x-llmgw-replica"], found["choices"][0]["message"]["content"]
        return answer.status, str(found["error"]["code"]), str(found["error"]["message"])


async def stream(home: House, url: str, model: str, tokens: int) -> int:
    """How many tokens came, read to the end."""
    body = {"model": model, "max_tokens": tokens, "stream": True}
    async with home.http.post(f"{url}/v1/chat/completions", json=body) as answer:
        lines = [line async for line in answer.content if line.startswith(b"data: ")]
    assert lines[-1].startswith(b"data: [DONE]")
    return len(lines) - 1


async def rows(home: House) -> list[Mapping[str, Any]]:
    return [row for page in await home.fleet.pages("replicas") for row in page["replicas"]]


async def only_left(home: House, wanted: set[str]) -> None:
    """Until no other engines are left, by the agents' reports."""
    async with asyncio.timeout(LIMIT_S):
        while {row["id"] for row in await rows(home)} != wanted:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.1)


@asynccontextmanager
async def asked_all_the_time(home: House, model: str) -> AsyncIterator[list[tuple[int, str, str]]]:
    """Ask one request after the other meanwhile; what came of them."""
    found: list[tuple[int, str, str]] = []

    async def keep_asking() -> None:
        while True:
            found.append(await ask(home, "r1", model))
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(keep_asking())
    try:
        yield found
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


# --- B26: published before it can answer ---------------------------------------------------------------------------


async def test_b26_nobody_reaches_an_engine_before_it_answers_and_a_wrong_name_is_never_published(
    tmp_path: Path,
) -> None:
    """It listens, loads, lists its model, and only then serves; another one lists a name that is not its own."""
    late = stub("late", 1, "--load-s", "0.5", "--refuse-s", "1.0", probe_completion=True)
    wrong = stub("wrong", 1, "--list-as", "somebody-else")
    async with house(tmp_path, router_flags=("--hold-limit-s", "0")) as home:
        await home.fleet.apply(home.catalog(late, wrong))
        await home.until(lambda states, _: "late" in states)
        async with asked_all_the_time(home, "late") as answers:
            await home.until_listed({"late": "ready", "late-alias": "ready"})
            published = len(answers)
            async with asyncio.timeout(LIMIT_S):
                while not any(status == 200 for status, _, _ in answers[published:]):  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0.05)
        statuses = [status for status, _, _ in answers]
        assert statuses == sorted(statuses, reverse=True), "no error after the first answer"
        refused = {code for status, code, _ in answers if status != 200}
        assert refused <= {"no_table", "model_not_found", "model_starting", "model_asleep"}, "the router's own word"
        [row] = [row for row in await rows(home) if row["model"] == "wrong"]
        assert (await home.table())[1]["wrong"] == []
        assert "somebody-else" in row["reason"]


# --- B27: still published while it stops; B31: several routers, several truths --------------------------------------


async def test_b27_b31_routers_agree_however_slow_or_away_one_of_them_is(tmp_path: Path) -> None:
    async with house(tmp_path, routers=3) as home:
        policy = {"drain_limit_s": 60.0, "removal_grace_s": 0.0, "suspect_after_s": 3.0, "lost_after_s": 30.0}

        async def wants(*models: dict[str, object]) -> None:
            await home.fleet.apply(home.catalog(*models, policy=policy))

        await wants(stub("m", 2))
        await home.until(lambda _, replicas: len(replicas.get("m", ())) == 2)
        await home.until_listed({"m": "ready", "m-alias": "ready"})

        # Streams on both replicas run to their end, those that came past the routers too.
        doors = [home.url(f"r{n % 3 + 1}") for n in range(6)]
        doors += [e["url"] for page in await home.fleet.pages("endpoints") for e in page["endpoints"]]
        counts = [150] * 6 + [300] * 2
        streams = [asyncio.create_task(stream(home, door, "m", n)) for door, n in zip(doors, counts, strict=True)]
        await wants(stub("m", 1))
        await home.until(lambda _, replicas: len(replicas["m"]) == 1)
        [stays] = (await home.table())[1]["m"]
        assert await asyncio.gather(*streams) == counts
        await only_left(home, {stays})

        # One router is slow: it is waited for, named, and agrees with the others afterwards.
        r3 = home.parts["r3"].process
        assert r3 is not None
        r3.send_signal(signal.SIGSTOP)
        await wants()
        async with asyncio.timeout(LIMIT_S):
            while (behind := await not_current(home)) != {"r3"}:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.1)
        assert behind == {"r3"}
        await only_left(home, set())
        r3.send_signal(signal.SIGCONT)
        await agree(home, {})

        # The same name comes back elsewhere, while another router is away with its old table on disk.
        await wants(stub("m", 1))
        await home.until_listed({"m": "ready"})
        await home.parts["r2"].end()
        await wants(stub("m", 1, "--tokens", "3"))
        [before] = (await home.table())[1]["m"]
        await home.until(lambda _, replicas: len(replicas["m"]) == 1 and replicas["m"] != [before])
        [after] = (await home.table())[1]["m"]
        await only_left(home, {after})
        await home.parts["r2"].start()
        await agree(home, {"m": "ready", "m-alias": "ready"})
        answers = [await ask(home, router, name) for router in home.routers for name in ("m", "m-alias")]
        assert {(status, replica) for status, replica, _ in answers} == {(200, after)}


async def not_current(home: House) -> set[str]:
    status = await home.status()
    return {row["id"] for row in status["routers"] if not row["current"]}


async def agree(home: House, names: Mapping[str, str]) -> None:
    """Until every router is current, and lists exactly these names."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            listed = [await home.listed(router) for router in home.routers]
            if all(found == names for found in listed) and not await not_current(home):
                return
            await asyncio.sleep(0.1)


# --- B29: healthy that hangs ---------------------------------------------------------------------------------------


async def test_b29_an_engine_that_hangs_behind_a_healthy_face_is_replaced_and_an_idle_one_is_not(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home:
        await home.fleet.apply(home.catalog(stub("m", 1, stall_limit_s=2.0), stub("idle", 1, stall_limit_s=2.0)))
        await home.until_listed({"m": "ready", "idle": "ready"})
        [hangs], [idles] = [(await home.table())[1][name] for name in ("m", "idle")]
        pages = await home.fleet.pages("endpoints")
        [url] = [e["url"] for page in pages for e in page["endpoints"] if e["id"] == hangs]
        async with home.http.post(f"{url}/stub", json={"do": "stall"}) as told:
            assert told.status == 200
        stuck = asyncio.create_task(ask(home, "r1", "m"))
        async with home.http.get(f"{url}/health") as health:
            assert health.status == 200, "its face is healthy"
        await home.until(lambda _, replicas: bool(replicas["m"]) and hangs not in replicas["m"])
        status, replica, _ = await stuck
        assert status >= 500 or replica != hangs, "its request ended with it, or went on elsewhere"
        status, replica, _ = await ask(home, "r1", "m")
        assert (status, replica != hangs) == (200, True)
        assert (await home.table())[1]["idle"] == [idles]
        events = [str(event) for event in (await home.fleet.query("events"))["events"]]
        assert any("no token progress" in event for event in events), events


async def test_b29_an_engine_that_is_only_too_busy_to_answer_is_never_ended_and_serves_on(tmp_path: Path) -> None:
    """Its health, its list and its figures take longer than anybody waits, for longer than a stall may last."""
    async with house(tmp_path) as home:
        await home.fleet.apply(home.catalog(stub("m", 1, stall_limit_s=2.0)))
        await home.until_listed({"m": "ready"})
        [busy] = (await home.table())[1]["m"]
        [url] = [e["url"] for page in await home.fleet.pages("endpoints") for e in page["endpoints"]]
        before = await rows(home)
        works = asyncio.create_task(stream(home, home.url("r1"), "m", 1000))
        async with asyncio.timeout(LIMIT_S):
            while not await in_flight(home, url):  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.1)
        async with home.http.post(f"{url}/stub", json={"do": "slow", "s": 3600.0}) as told:
            assert told.status == 200
        await home.until(lambda _, replicas: not replicas["m"])
        async with home.http.post(f"{url}/stub", json={"do": "slow"}) as told:
            assert told.status == 200
        await home.until(lambda _, replicas: replicas["m"] == [busy])
        assert await works == 1000, "what it worked on ends in order"
        assert [row["id"] for row in await rows(home)] == [row["id"] for row in before] == [busy]
        assert (await ask(home, "r1", "m"))[:2] == (200, busy)
        events = [str(event) for event in (await home.fleet.query("events"))["events"]]
        assert not any("fail" in event or "hung" in event for event in events), events


async def in_flight(home: House, url: str) -> int:
    async with home.http.get(f"{url}/metrics") as page:
        lines = (await page.text()).splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("stub:requests_running "))
