"""What cannot even be decoded is refused where everybody looks, and nowhere is anything lost over it."""

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from llmgw.plan import Judgement, Verdict
from workers.control import runner
from workflows import names
from workflows.client import Fleet
from workflows.converting import Undecodable, data_converter
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

GOOD = {"models": [{"name": "m", "profiles": [{"name": "p", "engine": "stub"}]}]}


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


UNREADABLE = {
    "nested 500 deep": raw(b"[" * 500 + b"]" * 500),
    "a lone surrogate": raw(b'{"models": "\\ud83d"}'),
    "half a document": raw(b'{"models": ['),
    "no text": raw(b"\xff\xfe\x00"),
    "an unknown encoding": raw(b"\x00\xff", b"weird"),
    "no encoding": raw(b"{}", b""),
}


async def refusals(fleet: Fleet) -> list[dict[str, Any]]:
    status: dict[str, Any] = await fleet.query(names.STATUS)
    return list(status["refusals"])


def replayer() -> Replayer:
    return Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )


async def test_signals_that_cannot_be_read_are_refused_visibly_and_replay(fleet: Fleet) -> None:
    accepted = await fleet.apply(GOOD)
    for value in UNREADABLE.values():
        await fleet.handle.signal(names.REPLACE_CATALOG, value)
        await fleet.handle.signal("cordon", args=[{"node": "a"}, value])
    again = await fleet.apply(GOOD)
    assert (again.judgement, again.generation) == (Judgement.UNCHANGED, accepted.generation)
    told = [(refusal["name"], refusal["problems"][0]) for refusal in await refusals(fleet)]
    by_name = {name: [text for of, text in told if of == name] for name in (names.REPLACE_CATALOG, "cordon")}
    assert [len(texts) for texts in by_name.values()] == [len(UNREADABLE)] * 2
    assert all(text.startswith("argument 1 cannot be read: ") for text in by_name[names.REPLACE_CATALOG])
    assert all(text.startswith("argument 2 cannot be read: ") for text in by_name["cordon"])
    assert all(len(text) <= 300 for _, text in told)
    assert (await replayer().replay_workflow(await fleet.handle.fetch_history())).replay_failure is None


@pytest.mark.parametrize("name", [names.APPLY_CATALOG, "cordon"])
async def test_updates_that_cannot_be_read_are_answered_with_why(fleet: Fleet, name: str) -> None:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await fleet.handle.execute_update(name, UNREADABLE["half a document"], result_type=Verdict)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == names.UNDECODABLE
    assert cause.message.startswith("argument 1 cannot be read: ")


async def test_only_where_no_type_is_asked_for_an_unreadable_value_is_a_value() -> None:
    broken = Payload(metadata={"encoding": b"json/plain"}, data=b"{")
    found = await data_converter.decode([broken])
    assert isinstance(found[0], Undecodable)
    with pytest.raises(ValueError, match="Invalid JSON"):
        await data_converter.decode([broken], [Verdict])
    good = Payload(metadata={"encoding": b"json/plain"}, data=b"[1]")
    assert await data_converter.decode([good, broken, good], None) == [[1], found[0], [1]]
