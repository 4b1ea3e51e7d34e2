"""The agent's API as published, and the agent under whatever a client may send: nothing that the page does not tell,
no 500, and an agent that serves on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from agent.description import published
from bench.processes import free_block
from tests.agent.running import NODE, Agent, token

BEARER = {"authorization": "Bearer secret-token"}
DESCRIPTION = Path(__file__).parents[2] / "docs" / "agent.openapi.json"


def test_the_published_description_is_what_the_agent_serves() -> None:
    text = DESCRIPTION.read_text()
    assert text == published(), "python -m agent.description > docs/agent.openapi.json writes it anew"
    assert {"/v1/state", "/v1/commands", "/v1/release"} <= json.loads(text)["paths"].keys()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent that may start nothing and has an empty weights root."""
    folder = tmp_path_factory.mktemp("fuzzed")
    for name in ("state", "weights"):
        (folder / name).mkdir()
    with asyncio.Runner() as runner, free_block() as port:

        async def begin() -> Agent:
            agent = Agent(folder / "state", port)
            (folder / "tokens").write_text("secret-token")
            agent.http.headers.update(BEARER)
            flags = (
                "--token-file",
                str(folder / "tokens"),
                "--weights-root",
                str(folder / "weights"),
                "--allow",
                "none",
                "--requests-per-s",
                "10000",
            )
            await agent.begin(*flags)
            return agent

        agent = runner.run(begin())
        yield agent.url
        runner.run(agent.clean())


# What a schema cannot say (ids that are safe as names, known placeholders) is refused all the same; and the check of
# tokens does not see that they are given to every call (`test_gate` sees to that).
UNFIT = [positive_data_acceptance, ignored_auth]

# The held stream has no end to wait for: it is asked below.
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_path(DESCRIPTION).exclude(path="/v1/state").get_all_operations()
    if isinstance(found, Ok)
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_whatever_is_sent_the_answer_is_one_that_is_described(served: str, operation: Any) -> None:
    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(operation.as_strategy())
    def fuzz(case: Any) -> None:
        if isinstance(case.body, dict) and "commands" in case.body and len(str(case.body)) % 2:
            case.body |= {"node": NODE, "token": token(5).model_dump()}  # far enough in to be judged
        case.call_and_validate(base_url=served, timeout=10, headers=BEARER, excluded_checks=UNFIT)

    fuzz()
    assert httpx.get(f"{served}/healthz", trust_env=False).status_code == 200


@pytest.mark.parametrize("query", ["instance=%00", "revision=x", "revision=1e9", "revision=", "instance=a&instance=b"])
def test_the_held_stream_takes_any_question(served: str, query: str) -> None:
    with httpx.stream("GET", f"{served}/v1/state?{query}", headers=BEARER, trust_env=False) as answer:
        assert answer.status_code in (200, 422)
        if answer.status_code == 200:
            assert json.loads(next(answer.iter_lines()))["node"] == NODE
