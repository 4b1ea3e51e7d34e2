"""What a worker serves: who may look at what, what it says when the fleet is silent, engines for Prometheus."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from llmgw import views
from tests.cli.fleets import Raising, WorldFleet
from tests.workers.fleets import rolling, troubled
from workers import serving
from workers.meters import Meters
from workers.reading import Onlookers
from workers.settings import WorkerSettings, page_tokens


@asynccontextmanager
async def client(fleet: WorldFleet, *tokens: str) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(serving.application(fleet, Meters("main"), tokens))) as found:
        yield found


CLOSED = ("/v1/fleet", "/v1/explain?subject=llama", "/v1/engines")


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    ("given", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Basic two", 401), ("Bearer", 401), ("Bearer one", 200), ("bearer two", 200)],
)
async def test_what_names_something_wants_one_of_the_tokens(path: str, given: str | None, status: int) -> None:
    async with client(troubled(), "one", "two") as web:
        answer = await web.get(path, headers={} if given is None else {"Authorization": given})
        assert answer.status == status
        assert ("problem" in await answer.json()) == (status == 401)


@pytest.mark.parametrize("path", sorted(serving.OPEN))
async def test_the_empty_page_health_and_metrics_are_open(path: str) -> None:
    async with client(troubled(), "one") as web:
        answer = await web.get(path)
        assert answer.status == 200
        assert "main" not in await answer.text() or path == "/metrics" or path.endswith((".js", "/"))
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")


@pytest.mark.parametrize("path", [*CLOSED, "/"])
async def test_nothing_can_be_changed(path: str) -> None:
    async with client(troubled()) as web:
        for method in ("POST", "PUT", "DELETE"):
            assert (await web.request(method, path)).status == 405


async def test_the_picture_is_what_the_command_line_shows() -> None:
    fleet = rolling()
    async with client(fleet) as web:
        found = await (await web.get("/v1/fleet")).json()
    assert views.Status.model_validate(found["status"]).fleet == "f"
    assert [views.ModelRow.model_validate(row).name for row in found["models"]] == ["bge", "llama", "qwen3-32b"]
    assert len(found["replicas"]) == len(fleet.world.assignments)
    assert len(found["nodes"]) == 3


async def test_an_explanation_is_that_of_the_command_line() -> None:
    async with client(troubled()) as web:
        found = views.Explanation.model_validate(await (await web.get("/v1/explain?subject=node/gpu-rack3-01")).json())
    assert found.known
    assert "gpu-rack3-01 is lost" in found.sentences[0]


async def test_engines_are_targets_with_labels() -> None:
    async with client(rolling()) as web:
        found = await (await web.get("/v1/engines")).json()
    ready = [t for t in found if t["labels"]["model"] == "llama"]
    assert [t["labels"]["__metrics_path__"] for t in ready] == ["/metrics", "/metrics"]
    assert {t["labels"]["__scheme__"] for t in ready} == {"http"}
    assert all(re.fullmatch(r"[abc]:\d+", t["targets"][0]) for t in ready)
    assert {"replica", "node", "engine", "profile", "fleet"} <= ready[0]["labels"].keys()


@pytest.mark.parametrize("path", CLOSED)
async def test_a_silent_fleet_is_told_as_503_and_prometheus_keeps_what_it_had(path: str) -> None:
    async with client(Raising(TimeoutError())) as web:
        answer = await web.get(path)
        assert answer.status == 503
        assert await answer.json() == {"problem": "the fleet does not answer"}
        assert (await web.get("/metrics")).status == 200


async def test_all_who_look_on_share_one_picture() -> None:
    fleet, asked = troubled(), []
    answer = fleet.query

    async def query(name: str, *args: object, **more: object) -> object:
        asked.append(name)
        return await answer(name, *args, **more)  # type: ignore[arg-type]

    fleet.query = query  # type: ignore[method-assign]
    onlookers = Onlookers(fleet, least_s=3600.0)
    pictures = await asyncio.gather(*(onlookers.picture() for _ in range(20)))
    assert len({id(picture) for picture in pictures}) == 1
    assert asked.count("status") == 1


def test_people_may_have_tokens_of_their_own(tmp_path: Path) -> None:
    agents, people, empty = tmp_path / "agents", tmp_path / "people", tmp_path / "empty"
    agents.write_text("commands\n")
    people.write_text("# who\nanna\n\nben\n")
    empty.write_text("# none\n")
    given = {"installation": "i"}
    assert page_tokens(WorkerSettings.model_validate(given)) == ()
    assert page_tokens(WorkerSettings.model_validate({**given, "token_file": agents})) == ("commands",)
    both = WorkerSettings.model_validate({**given, "token_file": agents, "page_token_file": people})
    assert page_tokens(both) == ("anna", "ben")
    with pytest.raises(ValueError, match="no token in it"):
        page_tokens(WorkerSettings.model_validate({**given, "page_token_file": empty}))
