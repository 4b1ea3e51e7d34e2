"""What an agent refuses, and how it says so: fencing, double booking, bad batches, bad settings, paths outside."""

import json
from pathlib import Path

import pytest

from agent.settings import SettingsError, read_settings
from llmgw.wire import DeviceNaming, DeviceSelection, LaunchSpec, Outcome, RefusalCode
from tests.agent.running import Agent, agent_in, start, stop, stub, token


async def test_older_tokens_and_other_owners_are_refused_and_told_what_is_held(agent: Agent) -> None:
    await agent.send(5)
    stale = await agent.post(4)
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_token")
    assert stale.json()["held"]["seq"] == 5
    foreign = await agent.post(9, token=token(9, installation="another"))
    assert (foreign.status_code, foreign.json()["code"]) == (403, "foreign_owner")
    assert foreign.json()["owner"] == {"installation": "here", "fleet": "f"}
    wrong = await agent.post(9, node="n2")
    assert (wrong.status_code, wrong.json()["code"]) == (409, "wrong_node")
    assert (await agent.report()).token == token(5)


async def test_a_repeat_of_what_was_taken_before_a_boot_starts_nothing_a_second_time(agent: Agent) -> None:
    """Its replica was proven gone by the report of the new boot, which holds the batch's token."""
    once = start("m-1", stub())
    await agent.send(5)
    assert (await agent.post(5)).status_code == 200, "in the same boot a repeat is answered again"
    await agent.kill()
    ledger = agent.ledger()
    (agent.state_dir / "ledger.json").write_text(json.dumps({**ledger, "boot_id": "an earlier one"}))
    await agent.begin()
    assert (await agent.report()).token == token(5)
    refused = (await agent.send(5, once)).results[0].refusal
    assert refused is not None
    assert (refused.code, "a repeat of it changes nothing" in refused.message) == (RefusalCode.CONFLICT, True)
    assert (await agent.report()).replicas == ()
    assert (await agent.send(6, once)).results[0].outcome is Outcome.ACCEPTED


async def test_a_repeat_starts_nothing_that_was_refused_when_it_came_first(agent: Agent) -> None:
    """The plane may have taken that for proof, and placed it elsewhere."""
    device = (await agent.report()).inventory.devices[0].id
    await agent.send(1, start("m-1", stub(), device))
    second = start("m-2", stub(), device)
    await agent.send(2, stop("m-1"), second)
    await agent.without("m-1")
    again = (await agent.send(2, stop("m-1"), second)).results
    assert [result.outcome for result in again] == [Outcome.ALREADY, Outcome.REFUSED]
    assert (await agent.send(3, second)).results[0].outcome is Outcome.ACCEPTED
    assert (await agent.send(3, second)).results[0].outcome is Outcome.ALREADY


async def test_release_gives_the_agent_up_for_another_installation(agent: Agent) -> None:
    await agent.send(5)
    mistaken = {"owner": {"installation": "another", "fleet": "f"}}
    assert (await agent.http.post("/v1/release", json=mistaken)).status_code == 403
    right = {"owner": {"installation": "here", "fleet": "f"}}
    assert (await agent.http.post("/v1/release", json=right)).status_code == 204
    assert (await agent.post(1, token=token(1, installation="another"))).status_code == 200


async def test_a_device_is_never_given_out_twice_and_repeats_change_nothing(agent: Agent) -> None:
    device = (await agent.report()).inventory.devices[0].id
    first = start("m-1", stub(), device)
    assert (await agent.send(1, first)).results[0].outcome is Outcome.ACCEPTED
    again = await agent.send(2, first, start("m-2", stub(), device))
    assert again.results[0].outcome is Outcome.ALREADY
    assert again.results[1].refusal is not None
    assert again.results[1].refusal.code is RefusalCode.DEVICE_CLAIMED
    other = await agent.send(3, start("m-1", stub(), device, fingerprint="another"))
    assert other.results[0].refusal is not None
    assert other.results[0].refusal.code is RefusalCode.CONFLICT
    assert len(agent.ours()) == 1
    await agent.send(4, stop("m-1"))
    await agent.without("m-1")
    assert (await agent.send(5, start("m-2", stub(), device))).results[0].outcome is Outcome.ACCEPTED
    await agent.row("m-2", "ready")


NOT_NOW: tuple[tuple[LaunchSpec, tuple[str, ...], RefusalCode], ...] = (
    (stub().model_copy(update={"argv": ("no-such-program",)}), (), RefusalCode.NOT_FOUND),
    (stub().model_copy(update={"secret_env": {"A": "nowhere"}}), (), RefusalCode.NO_SECRET),
    (stub().model_copy(update={"secret_env": {"A": "../../etc/passwd"}}), (), RefusalCode.NO_SECRET),
    (stub().model_copy(update={"weights": "file:///nowhere/at/all"}), (), RefusalCode.NOT_FOUND),
    (stub().model_copy(update={"weights": "https://nowhere/at/all"}), (), RefusalCode.NOT_FOUND),
    (stub().model_copy(update={"weights": "s3://nowhere/at/all"}), (), RefusalCode.UNSUPPORTED),
    (stub(), ("GPU-of-another-machine",), RefusalCode.DEVICE_UNKNOWN),
    (
        stub().model_copy(update={"devices": DeviceSelection(naming=DeviceNaming.UUID, variables=("A",))}),
        (),
        RefusalCode.NO_DEVICES,
    ),
)


async def test_what_cannot_be_started_now_is_refused_each_with_its_reason(agent: Agent) -> None:
    wanted = [start(f"m-{number}", launch, *devices) for number, (launch, devices, _) in enumerate(NOT_NOW)]
    reply = await agent.send(1, *wanted)
    assert [result.refusal and result.refusal.code for result in reply.results] == [code for _, _, code in NOT_NOW]
    assert (await agent.report()).replicas == ()


async def test_a_batch_that_is_not_understood_names_every_problem_and_changes_nothing(agent: Agent) -> None:
    answer = await agent.http.post("/v1/commands", json={"node": "n1", "commands": [{"kind": "start"}, {"kind": "x"}]})
    assert answer.status_code == 422
    assert "token" in answer.json()["message"]
    odd = stub().model_copy(update={"argv": ("a\0b", "${llmgw:nonsense}")})
    answer = await agent.post(1, start("../m", odd))
    assert answer.status_code == 422
    for word in ("../m", "NUL", "nonsense"):
        assert word in answer.json()["message"]
    assert (await agent.report()).token is None


async def test_only_bearers_of_a_known_token_get_in(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("old\nnew\n")
    async with agent_in(tmp_path, "--token-file", str(tokens)) as agent:
        assert (await agent.post(1)).status_code == 401
        for known in ("old", "new"):
            agent.http.headers["authorization"] = f"Bearer {known}"
            assert (await agent.post(1)).status_code == 200
        agent.http.headers["authorization"] = "Bearer older"
        assert (await agent.http.get("/v1/state")).status_code == 401
        assert (await agent.http.get("/healthz")).status_code == 200


def test_bad_settings_are_named_all_at_once() -> None:
    argv = ["--listen", "nowhere", "--port-range", "9-1", "--devices", "2x", "--log-limit-mib", "0"]
    with pytest.raises(SettingsError) as caught:
        read_settings(argv, {})
    said = "\n".join(caught.value.problems)
    for flag in ("--node-id", "--state-dir", "--listen", "--port-range", "--log-limit-mib"):
        assert flag in said
