"""`devices restore`: a quarantined device, named as the listing shows it, and no other."""

import json

import httpx
import pytest

from tests.cli.fleets import Command, WorldFleet
from tests.cli.scenes import troubled


class Agent:
    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.asked: list[tuple[str, object]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((str(request.url), json.loads(request.content)))
        if self.refusal:
            return httpx.Response(409, json={"code": "invalid", "message": self.refusal})
        return httpx.Response(204)


@pytest.mark.parametrize("device", ["0", "GPU-llama-2"])
def test_a_quarantined_device_is_restored_by_its_agent(device: str) -> None:
    agent = Agent()
    done = Command(WorldFleet(troubled()), agent)("devices", "restore", "gpu-rack2-11", device, "--json")
    assert done.exit_code == 0, done.stderr
    assert agent.asked == [("http://gpu-rack2-11.example.org:7811/v1/restore", {"device": "GPU-llama-2"})]
    assert json.loads(done.stdout)["was"] == "stayed in use after a stop"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gpu-rack1-07 1", "is not out of use: there is nothing to lift"),
        ("gpu-rack2-11 9", "gpu-rack2-11 has no device 9; it has: 0 (GPU-llama-2), 1 "),
        ("nope 0", "there is no node nope"),
    ],
)
def test_what_is_not_quarantined_is_left_alone(words: str, said: str) -> None:
    agent = Agent()
    done = Command(WorldFleet(troubled()), agent)("devices", "restore", *words.split())
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
    assert agent.asked == []


def test_what_the_agent_refuses_is_told() -> None:
    agent = Agent("m-1 still runs as pid 7 (vllm): the device is free once that has ended")
    done = Command(WorldFleet(troubled()), agent)("devices", "restore", "gpu-rack2-11", "0")
    assert done.exit_code == 1
    assert "m-1 still runs as pid 7 (vllm)" in done.stderr
