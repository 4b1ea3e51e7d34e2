"""`nodes release`: told whom an agent belongs to, it forgets that, and only that."""

import json

import httpx
import pytest

from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import world

OWNED: dict[str, object] = {"node": "node-a", "owner": {"installation": "other", "fleet": "prod"}}


class Agent:
    """Says who it is, and forgets its owner when that is named."""

    def __init__(self, report: dict[str, object]) -> None:
        self.report = report
        self.released: list[object] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/state":
            return httpx.Response(200, text="\n" + json.dumps(self.report) + "\n")
        assert (request.method, request.url.path) == ("POST", "/v1/release")
        named = json.loads(request.content)["owner"]
        if named != self.report["owner"]:
            return httpx.Response(403, json={"code": "foreign_owner", "message": "belongs to other/prod", "owner": {}})
        self.released.append(named)
        return httpx.Response(204)


def test_without_an_owner_it_is_told_and_nothing_is_done() -> None:
    agent = Agent(OWNED)
    done = Command(WorldFleet(world()), agent)("nodes", "release", "node-a")
    assert done.exit_code == 1
    assert (
        "node-a belongs to other/prod; to have it forget that: llmgw nodes release node-a --owner other/prod"
        in done.stderr
    )
    assert agent.released == []


@pytest.mark.parametrize("given", ["node-a", "http://somewhere:7070/"])
def test_the_owner_that_is_named_is_forgotten(given: str) -> None:
    agent = Agent(OWNED)
    done = Command(WorldFleet(world()), agent)("nodes", "release", given, "--owner", "other/prod", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"node": "node-a", "owner": "other/prod", "released": True}
    assert agent.released == [OWNED["owner"]]


def test_another_owner_than_the_named_one_is_left_alone() -> None:
    agent = Agent(OWNED)
    done = Command(WorldFleet(world()), agent)("nodes", "release", "node-a", "--owner", "main/main")
    assert done.exit_code == 1
    assert "the agent answers 403: belongs to other/prod" in done.stderr
    assert agent.released == []


def test_one_that_belongs_to_nobody_needs_no_release() -> None:
    done = Command(WorldFleet(world()), Agent({"node": "node-a", "owner": None}))("nodes", "release", "node-a")
    assert (done.exit_code, done.stdout) == (0, "node-a belongs to nobody: whoever commands it first has it\n")


def test_what_cannot_be_is_said() -> None:
    command = Command(WorldFleet(world()), Agent(OWNED))
    assert command("nodes", "release", "node-a", "--owner", "other").exit_code == 2
    done = command("nodes", "release", "nope")
    assert done.exit_code == 1
    assert "there is no node nope" in done.stderr
