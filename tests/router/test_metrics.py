"""Metrics and the access log: what is counted, under bounded labels, and never a prompt or a key."""

import json
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from .rig import CHAT, Engine, Rig, endpoint, model, started, table

Sample = tuple[str, tuple[tuple[str, str], ...]]


async def scraped(rig: Rig) -> dict[Sample, float]:
    async with rig.client.get(rig.url + "/metrics") as response:
        assert response.status == 200
        text = await response.text()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(name: str, **labels: str) -> Sample:
    return f"llmgw_router_{name}", tuple(sorted(labels.items()))


async def test_requests_misses_and_the_table_are_told(rig: Rig, engine: Engine) -> None:
    served = {"model": "m", "fleet": "f", "endpoint": "m-1"}
    dead = {"model": "m", "fleet": "f", "endpoint": "m-0"}
    reply = await rig.serve(
        (model("m"), model("z")), (endpoint("m-0", "http://127.0.0.1:1"), engine.endpoint(priority=1))
    )
    for name in ("m", "m", "z", "made-up-1", "made-up-2"):
        await rig.ask(name)
    await rig.put(table(0))
    metrics = await scraped(rig)
    assert metrics[at("requests_total", code="200", **served)] == 2
    assert metrics[at("in_flight", **served)] == 0
    assert metrics[at("ejections_total", **dead)] == 1
    assert metrics[at("retries_total", model="m", cause="unreachable")] == 1
    assert metrics[at("first_byte_seconds_count", model="m")] == 2
    assert metrics[at("misses_total", model="z", cause="not_ready")] == 1
    assert metrics[at("misses_total", model="", cause="unknown_model")] == 2
    assert metrics[at("table_info", fleet="f", installation="home", digest=str(reply["digest"]))] == 1
    assert metrics[at("table_seq", fleet="f")] == 1
    assert metrics[at("table_endpoints", fleet="f")] == 2
    assert metrics[at("table_refusals_total", code="stale_token")] == 1
    assert not any("made-up" in value for _, labels in metrics for _, value in labels)


async def test_counts_of_a_withdrawn_endpoint_stay_for_the_next_scrape(rig: Rig, engine: Engine, other: Engine) -> None:
    await rig.serve((model("m"),), (engine.endpoint(),))
    await rig.ask()
    await rig.serve((model("m"),), (other.endpoint(),), seq=2)
    metrics = await scraped(rig)
    assert metrics[at("requests_total", code="200", model="m", fleet="f", endpoint="m-1")] == 1
    assert metrics[at("in_flight", model="m", fleet="f", endpoint="m-2")] == 0


async def test_the_access_log_has_no_prompt_and_no_key(tmp_path: Path, engine: Engine) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-secret\n")
    async with started(tmp_path / "state", api_keys_file=keys, access_log=True) as rig:
        await rig.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),))
        with capture_logs() as logs:
            headers = {"Authorization": "Bearer sk-secret", "x-request-id": "r-7"}
            for name in ("chat", "made-up"):
                body = {"model": name, "messages": [{"role": "user", "content": "the prompt"}]}
                async with rig.client.post(rig.url + CHAT + "?key=sk-query", json=body, headers=headers) as response:
                    assert response.headers["x-request-id"] == "r-7"
    answered, missed = (entry for entry in logs if entry["event"] == "request")
    expected = {"path": CHAT, "request_id": "r-7", "model": "m", "replica": "m-1", "status": 200, "attempts": 1}
    assert expected.items() <= answered.items()
    assert answered["sent_bytes"] == len(json.dumps({"replica": "m-1"}))
    assert {"model": None, "replica": None, "status": 404, "cause": "unknown_model"}.items() <= missed.items()
    for word in ("sk-", "prompt", "made-up"):
        assert word not in json.dumps(logs)
