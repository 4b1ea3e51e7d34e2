"""Logs: the fleet says where a replica is, its node's agent is asked with the token, and the text is copied."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from llmgw.world import World
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import assignment, serving


def agent(*parts: str, asked: list[httpx.Request] | None = None) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(request)
        return httpx.Response(200, content=iter([p.encode() for p in parts]))

    return answer


def two_of_qwen() -> World:
    found = serving("qwen", "llama")
    more = assignment("qwen-2", "qwen", "node-b")
    return replace(found, assignments={**found.assignments, more.replica: more})


def test_the_agent_of_the_replica_s_node_is_asked_with_the_token(tmp_path: Path) -> None:
    token = tmp_path / "tokens"
    token.write_text("secret\n")
    asked: list[httpx.Request] = []
    command = Command(WorldFleet(two_of_qwen()), agent("one\n", "two\n", asked=asked))
    done = command("logs", "qwen-2", "-n", "7", "--token-file", str(token))
    assert (done.exit_code, done.stdout) == (0, "one\ntwo\n")
    assert [str(r.url) for r in asked] == ["http://b:7070/v1/replicas/qwen-2/logs?lines=7"]
    assert asked[0].headers["authorization"] == "Bearer secret"


def test_following_is_asked_for_and_copies_until_the_end() -> None:
    asked: list[httpx.Request] = []
    done = Command(WorldFleet(two_of_qwen()), agent("a", "b\n", asked=asked))("logs", "qwen-1", "--follow")
    assert (done.exit_code, done.stdout) == (0, "ab\n")
    assert asked[0].url.params["follow"] == "1"


def test_ctrl_c_ends_following_well() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        def parts() -> "object":
            yield b"one\n"
            raise KeyboardInterrupt

        return httpx.Response(200, content=parts())  # type: ignore[arg-type]

    done = Command(WorldFleet(two_of_qwen()), answer)("logs", "qwen-1", "-f")
    assert (done.exit_code, done.stdout) == (0, "one\n")


@pytest.mark.parametrize("subject", ["llama", "model/llama", "replica/llama-1", "llama-1"])
def test_the_only_replica_of_a_model_is_meant_by_its_model(subject: str) -> None:
    asked: list[httpx.Request] = []
    Command(WorldFleet(two_of_qwen()), agent("x", asked=asked))("logs", subject)
    assert [r.url.path for r in asked] == ["/v1/replicas/llama-1/logs"]


def test_a_replica_that_is_gone_is_asked_for_at_its_node() -> None:
    asked: list[httpx.Request] = []
    done = Command(WorldFleet(two_of_qwen()), agent("x", asked=asked))("logs", "old-1", "--node", "node-b")
    assert done.exit_code == 0
    assert [str(r.url) for r in asked] == ["http://b:7070/v1/replicas/old-1/logs?lines=100"]


UNKNOWN = {
    "a model of several": (("qwen",), "name one of qwen-1, qwen-2"),
    "nothing known": (("old-1",), "add --node NODE"),
    "an unknown node": (("old-1", "--node", "node-z"), "there is no node node-z"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_found_is_told_and_no_agent_is_asked(case: str) -> None:
    words, said = UNKNOWN[case]
    done = Command(WorldFleet(two_of_qwen()))("logs", *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr


def test_an_agent_without_that_log_is_told_in_its_own_words() -> None:
    answer = httpx.Response(404, json={"code": "invalid", "message": "no log of replica 'qwen-1' on node 'node-a'"})
    done = Command(WorldFleet(two_of_qwen()), lambda _: answer)("logs", "qwen-1")
    assert done.exit_code == 1
    assert "no log of replica 'qwen-1' on node 'node-a'" in done.stderr


@pytest.mark.parametrize(("content", "said"), [("\n# none\n", "holds no token"), (None, "cannot read")])
def test_a_token_file_without_a_token_is_wrong_usage(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    done = Command(WorldFleet(two_of_qwen()))("logs", "qwen-1", "--token-file", str(file))
    assert done.exit_code == 2
    assert said in done.stderr
