"""Logs: the fleet says where a replica is, its node's agent is asked with the token, and the text is copied."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from llmgw.catalog import Catalog
from llmgw.ids import Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.world import Failure, World
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import NOW, assignment, model, raw_catalog, serving


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


def failed() -> World:
    """qwen has an alias and no replica; its second attempt failed on node-b a minute ago."""
    words = ("loading weights", "torch.OutOfMemoryError: CUDA out of memory")
    text = "the engine ended with exit code 1"
    failure = Failure(
        ReplicaId("qwen-7"), NodeId("node-b"), Fingerprint("f"), NOW - 60, False, 1, text, log_tail=words, attempt=2
    )
    found = serving("llama")
    entry = {"models": [model("qwen", aliases=["chat"]), model("llama", aliases=["small"]), model("calm")]}
    catalog = Catalog.model_validate({**raw_catalog(), **entry})
    return replace(found, catalog=catalog, failures={ModelName("qwen"): (failure,)})


def test_an_alias_means_its_model() -> None:
    asked: list[httpx.Request] = []
    Command(WorldFleet(failed()), agent("x", asked=asked))("logs", "small")
    assert [r.url.path for r in asked] == ["/v1/replicas/llama-1/logs"]


@pytest.mark.parametrize("subject", ["qwen-7", "qwen", "chat", "model/qwen", "replica/qwen-7"])
def test_of_what_failed_and_is_gone_its_node_is_asked_for_the_whole_log(subject: str) -> None:
    asked: list[httpx.Request] = []
    done = Command(WorldFleet(failed()), agent("all of it\n", asked=asked))("logs", subject)
    assert (done.exit_code, done.stdout) == (0, "all of it\n")
    assert [str(r.url) for r in asked] == ["http://b:7070/v1/replicas/qwen-7/logs?lines=100"]
    assert done.stderr == "qwen-7 is gone; it failed on node-b 1m ago: the engine ended with exit code 1\n"


def test_where_the_node_does_not_have_it_any_more_the_remembered_lines_are_shown() -> None:
    answer = httpx.Response(404, json={"code": "invalid", "message": "no log of replica 'qwen-7' on node 'node-b'"})
    done = Command(WorldFleet(failed()), lambda _: answer)("logs", "qwen")
    assert done.exit_code == 0
    assert done.stdout == "loading weights\ntorch.OutOfMemoryError: CUDA out of memory\n"
    assert "no log of replica 'qwen-7'" in done.stderr
    assert done.stderr.endswith("the last lines that the fleet remembers:\n")


def test_a_model_without_replicas_and_failures_is_told_so() -> None:
    done = Command(WorldFleet(failed()))("logs", "calm")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "calm has no replica now, and no failed attempt of it is remembered: `llmgw explain calm`" in done.stderr


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
