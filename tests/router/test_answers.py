"""The errors a router gives by itself: each cause has a code of its own, is in the docs, and says when to come back."""

import re
from collections import Counter
from pathlib import Path

import pytest

from llmgw.wire import ModelState
from router import answers
from router.answers import Answer, Miss

from .rig import CHAT, Rig, model

DOCS = Path(__file__).parents[2] / "docs" / "router.md"
ANSWERS: dict[str, Answer] = {
    "no table": answers.no_table(),
    "unknown model": answers.unknown_model("x", ["m"]),
    **{state.value: answers.not_ready("m", state, 7) for state in ModelState},
    "unreachable": answers.unreachable("m"),
    "broken": answers.broken("m", "the connection ended"),
    "bad body": answers.bad_body("no JSON"),
    "unreadable": answers.unreadable(),
    "too large": answers.too_large(1024),
    "too slow": answers.too_slow(300.0),
    "unauthorized": answers.unauthorized(),
    "unknown path": answers.unknown_path(["/v1/models"]),
}


def documented() -> dict[str, int]:
    """Code -> status, by the table in the docs."""
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", DOCS.read_text(), re.M)
    return {code: int(status) for status, code in rows}


def test_each_cause_has_a_code_of_its_own_and_the_docs_have_them_all() -> None:
    codes = Counter(answer.code for answer in ANSWERS.values())
    assert set(codes.values()) == {1}
    assert {answer.code: answer.status for answer in ANSWERS.values()} == documented()


@pytest.mark.parametrize("cause", ANSWERS)
def test_whoever_may_come_back_is_told_when(cause: str) -> None:
    answer = ANSWERS[cause]
    assert ("Retry-After" in answer.response().headers) == (answer.status == 503)


@pytest.mark.parametrize("miss", [Miss.WAITED, Miss.CROWDED])
def test_who_waited_in_vain_is_told_so_and_still_the_state(miss: Miss) -> None:
    plain, told = (answers.not_ready("m", ModelState.ASLEEP, 7, m) for m in (Miss.NOT_READY, miss))
    assert (told.code, told.state) == ("model_asleep", ModelState.ASLEEP)
    assert told.message != plain.message


async def test_an_unknown_name_a_sleeping_model_and_a_missing_table_are_told_apart(rig: Rig) -> None:
    async def code(name: str) -> tuple[int, str]:
        async with rig.client.post(rig.url + CHAT, json={"model": name}) as response:
            return response.status, (await response.json())["error"]["code"]

    assert await code("m") == (503, "no_table")
    rows = tuple(model(state.value, state=state) for state in ModelState)
    await rig.serve(rows, ())
    assert await code("x") == (404, "model_not_found")
    told = {state: await code(state.value) for state in ModelState}
    assert told == {
        ModelState.ASLEEP: (503, "model_asleep"),
        ModelState.STARTING: (503, "model_starting"),
        ModelState.UNAVAILABLE: (503, "model_unavailable"),
        ModelState.READY: (503, "model_not_ready"),
    }
