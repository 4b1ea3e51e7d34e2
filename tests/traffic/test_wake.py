"""Sleep and waking from end to end: real Temporal, worker, agent, router and engines."""

import asyncio
from pathlib import Path

import pytest

from bench.house import House, house

pytestmark = pytest.mark.real


def sleeper(name: str, load_s: float = 0.5, idle_timeout_s: float = 2.0) -> dict[str, object]:
    profile = {"name": "p", "engine": "stub", "args": ["--load-s", str(load_s)]}
    return {
        "name": name,
        "aliases": [f"{name}-alias"],
        "replicas": {"min": 0, "max": 1},
        "idle_timeout_s": idle_timeout_s,
        "profiles": [profile],
    }


async def ask(home: House, model: str) -> tuple[int, str]:
    """Status, and who answered."""
    url = f"{home.url('r1')}/v1/chat/completions"
    async with home.http.post(url, json={"model": model, "max_tokens": 2}) as answer:
        found = await answer.json()
        return answer.status, found["choices"][0]["message"]["content"] if answer.status == 200 else str(found)


async def test_requests_wake_their_models_and_idleness_puts_them_to_sleep_again(tmp_path: Path) -> None:
    async with house(tmp_path, router_flags=("--hold-limit-s", "40")) as home:
        await home.fleet.apply(home.catalog(sleeper("m"), sleeper("other")))
        await home.until_listed({"m": "asleep", "m-alias": "asleep", "other": "asleep"})

        answers = await asyncio.gather(*(ask(home, name) for name in ["m", "m-alias"] * 20))
        assert {status for status, _ in answers} == {200}
        assert len({text.partition("@")[0] for _, text in answers}) == 1, "one wake for all who wait"
        first = answers[0][1].partition("@")[0]
        states, replicas = await home.table()
        assert (states["other"], replicas["m"]) == ("asleep", [first])

        for is_gone in (False, True, False):
            await home.until_listed({"m": "asleep"})
            if is_gone:
                await gone(home)
            status, text = await ask(home, "m")
            assert status == 200
            # Asked for while it is only withdrawn, it may be taken back; once it is gone it starts anew.
            assert not is_gone or text.partition("@")[0] != first
            first = text.partition("@")[0]


async def gone(home: House) -> None:
    """Until no replica of any model is left, by the agents' reports."""
    async with asyncio.timeout(30):
        while any(page["replicas"] for page in await home.fleet.pages("replicas")):  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.1)


async def test_an_idle_engine_sleeps_where_it_is_and_wakes_for_all_who_wait(tmp_path: Path) -> None:
    model = {**sleeper("m", load_s=3.0), "idle": "sleep"}
    async with house(tmp_path, router_flags=("--hold-limit-s", "40")) as home:
        await home.fleet.apply(home.catalog(model))
        await home.until_listed({"m": "asleep"})
        status, first = await ask(home, "m")
        assert status == 200
        for _ in range(3):
            await asleep(home)
            answers = await asyncio.gather(*(ask(home, name) for name in ["m", "m-alias"] * 10))
            assert {status for status, _ in answers} == {200}
            assert {text for _, text in answers} == {first}, "the same engine, at the same port"


async def asleep(home: House) -> None:
    """Until every replica is shown as asleep."""
    async with asyncio.timeout(60):
        while True:
            rows = [row for page in await home.fleet.pages("replicas") for row in page["replicas"]]
            if rows and {row["state"] for row in rows} == {"asleep"}:
                return
            await asyncio.sleep(0.1)
