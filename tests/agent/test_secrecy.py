"""Secrets' values never leave the node: not in reports, logs, errors or the agent's own files, in no spelling."""

import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from hypothesis import given
from hypothesis import strategies as st

from agent.redaction import MARK, Redactor, forms_of
from tests.agent.running import Agent, agent_in, start, stub

CANARY = "CANARY-7f3a+/=\"'\\x"

SHOWS = """
import base64, json, os, sys, urllib.parse
value = os.environ["KEY"]
print(sys.argv, value, repr(value), json.dumps(value), urllib.parse.quote(value, safe=""), flush=True)
print(base64.b64encode(value.encode()).decode(), base64.b64encode(b"user:" + value.encode()).decode(), flush=True)
print("x" * 190 + value, flush=True)
raise RuntimeError("cannot log in with " + value)
"""


def spellings(value: str) -> set[str]:
    raw = value.encode()
    encoded = {base64.b64encode(b"\0" * n + raw).decode()[4 : 4 + 12] for n in range(3)}
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe=""), quote_plus(value), *encoded}


def assert_not_in(text: str) -> None:
    assert not [spelling for spelling in spellings(CANARY) if spelling in text], text
    assert CANARY[:8] not in text


async def shown(agent: Agent) -> str:
    """Everything that the agent tells anybody."""
    report = await agent.report()
    pages = [(await agent.http.get(path)).text for path in ("/metrics", "/openapi.json", "/v1/replicas/m-1/logs")]
    follow = (await agent.http.get("/v1/replicas/m-1/logs", params={"follow": 1, "lines": 50})).text
    return "\n".join((report.model_dump_json(), *pages, follow))


async def test_what_an_engine_shows_of_its_secrets_is_taken_out_of_reports_and_logs(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text(CANARY + "\n")
    launch = stub().model_copy(
        update={"argv": ("${llmgw:python}", "-c", SHOWS), "env": {}, "secret_env": {"KEY": "key"}}
    )
    async with agent_in(tmp_path, "--secrets-dir", str(secrets)) as agent:
        await agent.send(1, start("m-1", launch))
        row = await agent.row("m-1", "failed")
        assert "RuntimeError: cannot log in with ***" in row.log_tail
        assert_not_in(await shown(agent))
        (secrets / "key").write_text("another value")  # what was printed before a rotation stays secret
        assert_not_in(await shown(agent))
    kept = [p for p in (tmp_path / "state").rglob("*") if p.is_file() and p.suffix != ".log"]
    for path in (*kept, tmp_path / "agent.log"):
        assert_not_in(path.read_text(errors="replace"))


@given(st.text(min_size=6, max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_a_value_is_found_wherever_it_stands(value: str, before: str, after: str) -> None:
    redactor = Redactor()
    redactor.learn([value])
    assert MARK in redactor.clean(before + value + after)


@given(st.binary(max_size=5), st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=16, max_size=40))
def test_a_value_is_found_in_base64_whatever_stands_before_it(before: bytes, value: str) -> None:
    redactor = Redactor()
    redactor.learn([value])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        told = redactor.clean(encode(before + value.encode() + b"after").decode())
        assert MARK in told
        assert max(map(len, told.split(MARK))) <= 4 + 4 * ((len(before) + len("after")) // 3 + 1)


def test_short_values_and_none_change_nothing() -> None:
    redactor = Redactor()
    assert redactor.clean("text") == "text"
    redactor.learn(["on", "1", ""])
    assert redactor.clean("on 1 text") == "on 1 text"
    assert forms_of("") == set()


async def test_a_value_on_the_border_of_two_chunks_is_found() -> None:
    redactor = Redactor()
    redactor.learn([CANARY])
    raw = f"a {CANARY} b\nc {CANARY}".encode()
    for seed in range(20):
        cuts = sorted(random.Random(seed).sample(range(len(raw)), 5))

        async def chunks(cuts: list[int] = cuts) -> AsyncIterator[bytes]:
            for first, last in zip([0, *cuts], [*cuts, len(raw)], strict=True):
                yield raw[first:last]

        told = b"".join([part async for part in redactor.clean_stream(chunks())])
        assert told == b"a *** b\nc ***"
