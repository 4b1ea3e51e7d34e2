"""Who may replace a table, and when it is acknowledged."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw import table as tables
from llmgw.table import Table, TableChange
from llmgw.wire import ErrorCode, RouterTable, TablePatch, TableReply, Token
from router.disk import Disk
from router.tables import Held, Refused, Repeat, Tables, judge
from router.traffic import Traffic

from .rig import endpoint, model, patch, table, token

MODELS = (model("m", "chat"),)
ONE = table(5, MODELS, (endpoint("m-1"),))
TWO = table(6, MODELS, (endpoint("m-2"),))
TO_TWO = TableChange(put_endpoints=(endpoint("m-2"),), drop_endpoints=(endpoint("m-1").id,))


def held(document: RouterTable) -> Held:
    return Held(document.token, tables.build(document.models, document.endpoints))


def refused(offer: RouterTable | TablePatch, by: Held | None, others: dict[str, Table] | None = None) -> Refused:
    judged = judge(offer, by, others or {})
    assert isinstance(judged, Refused), judged
    return judged


@given(st.tuples(st.integers(1, 3), st.integers(0, 3)), st.tuples(st.integers(1, 3), st.integers(0, 3)))
def test_only_a_newer_token_replaces_a_table(old: tuple[int, int], new: tuple[int, int]) -> None:
    present = held(table(old[1], MODELS, (endpoint("m-1"),), epoch=old[0]))
    offer = table(new[1], MODELS, (endpoint("m-2"),), epoch=new[0])
    judged = judge(offer, present, {})
    assert isinstance(judged, Table if new > old else Refused)
    if isinstance(judged, Refused):
        assert (judged.status, judged.reply.code) == (409, ErrorCode.STALE_TOKEN)
        assert judged.reply.held == present.token
        assert judged.reply.digest == present.table.digest


def test_the_same_offer_again_is_a_repeat_and_the_same_token_with_another_table_is_not() -> None:
    assert judge(ONE, held(ONE), {}) == Repeat(held(ONE))
    assert refused(table(5, MODELS), held(ONE)).reply.code is ErrorCode.STALE_TOKEN


def test_another_installation_is_told_the_owner() -> None:
    judged = refused(table(99, installation="away", epoch=9), held(ONE))
    assert (judged.status, judged.reply.code) == (403, ErrorCode.FOREIGN_OWNER)
    assert judged.reply.owner is not None
    assert (judged.reply.owner.installation, judged.reply.owner.fleet) == ("home", "f")


def test_a_wrong_digest_and_a_wrong_table_are_refused() -> None:
    judged = refused(ONE.model_copy(update={"digest": "0" * 32}), None)
    assert (judged.status, judged.reply.code) == (422, ErrorCode.INVALID)
    assert ONE.digest in judged.reply.message
    judged = refused(table(7, (), (endpoint("m-1"),)), held(ONE))
    assert "names model 'm'" in judged.reply.message


def test_a_patch_makes_the_table_it_names() -> None:
    made = judge(patch(6, ONE, TO_TWO), held(ONE), {})
    assert made == tables.build(TWO.models, TWO.endpoints)


@pytest.mark.parametrize("present", [None, held(TWO)], ids=["no table", "another table"])
def test_a_patch_of_another_base_is_refused_with_the_digest_held(present: Held | None) -> None:
    offer = patch(9, ONE, TableChange(drop_models=(MODELS[0].name,), drop_endpoints=(endpoint("m-1").id,)))
    judged = refused(offer, present)
    assert (judged.status, judged.reply.code) == (409, ErrorCode.BASE_DIFFERS)
    assert judged.reply.digest == (present.table.digest if present else None)


def test_a_patch_whose_answer_was_lost_is_taken_again_under_a_newer_token() -> None:
    assert judge(patch(9, ONE, TO_TWO), held(TWO), {}) == held(TWO).table


def test_a_patch_with_a_wrong_digest_or_a_contradiction_is_refused() -> None:
    offer = patch(6, ONE, TO_TWO)
    assert refused(offer.model_copy(update={"digest": "0" * 32}), held(ONE)).status == 422
    twice = offer.model_copy(update={"drop_endpoints": (endpoint("m-2").id,)})
    assert "endpoint 'm-2' is given 2 times" in refused(twice, held(ONE)).reply.message


def test_a_name_that_is_an_alias_elsewhere_is_refused_naming_both() -> None:
    others = {"f": held(ONE).table, "g": tables.build((model("big", "m"),), ())}
    judged = refused(table(9, MODELS), held(ONE), others)
    assert (judged.status, judged.reply.code) == (409, ErrorCode.NAME_CONFLICT)
    assert "'m' is an alias of 'big' in fleet 'g' and a model in fleet 'f'" in judged.reply.message


class SlowDisk(Disk):
    """Writes when it is let; fails when told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.writing = threading.Event()
        self.go = threading.Event()
        self.broken = False

    def write(self, token: Token, table: Table) -> None:
        self.writing.set()
        assert self.go.wait(5)
        if self.broken:
            raise OSError(28, "No space left on device")
        super().write(token, table)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    with closing(SlowDisk(tmp_path)) as held:
        yield held


async def test_a_table_is_on_disk_and_in_force_when_it_is_acknowledged(disk: SlowDisk) -> None:
    traffic = Traffic(asyncio.get_running_loop().time)
    store = Tables(disk, traffic)
    answer = asyncio.ensure_future(store.offer(ONE))
    await asyncio.to_thread(disk.writing.wait, 5)
    assert not answer.done()
    assert traffic.routing.fleets == frozenset()
    disk.go.set()
    assert await answer == TableReply(token=ONE.token, digest=ONE.digest)
    assert list(disk.read()) == [(ONE.token, held(ONE).table)]
    assert set(traffic.routing.routes) == {"m", "chat"}


async def test_an_offer_goes_on_when_its_caller_is_gone(disk: SlowDisk) -> None:
    store = Tables(disk, Traffic(asyncio.get_running_loop().time))
    answer = asyncio.ensure_future(store.offer(ONE))
    await asyncio.to_thread(disk.writing.wait, 5)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    disk.go.set()
    assert isinstance(await store.offer(TWO), TableReply)
    assert store.summary()["f"].digest == TWO.digest


async def test_a_disk_that_fails_changes_nothing(disk: SlowDisk) -> None:
    disk.go.set()
    traffic = Traffic(asyncio.get_running_loop().time)
    store = Tables(disk, traffic)
    await store.offer(ONE)
    disk.broken = True
    revision = traffic.changes.revision
    with pytest.raises(OSError, match="No space"):
        await store.offer(TWO)
    assert store.summary()["f"].token == ONE.token
    assert set(traffic.routing.candidates) == {("f", "m-1")}
    assert traffic.changes.revision == revision
    disk.broken = False
    assert isinstance(await store.offer(TWO), TableReply)


async def test_offers_are_taken_one_at_a_time_and_late_ones_are_refused(disk: SlowDisk) -> None:
    disk.go.set()
    store = Tables(disk, Traffic(asyncio.get_running_loop().time))
    offers = [table(seq, MODELS, (endpoint(f"m-{seq}"),)) for seq in (3, 1, 4, 2, 5)]
    answers = await asyncio.gather(*map(store.offer, offers))
    assert [isinstance(answer, TableReply) for answer in answers] == [True, False, True, False, True]
    assert store.refusals[ErrorCode.STALE_TOKEN] == 2
    assert store.summary()["f"].token == token(5)


async def test_tables_that_contradict_each_other_on_disk_are_not_both_served(disk: SlowDisk) -> None:
    disk.go.set()
    disk.write(token(1, fleet="a"), tables.build((model("big", "chat"),), ()))
    disk.write(token(1, fleet="b"), tables.build((model("chat"),), ()))
    store = Tables(disk, Traffic(asyncio.get_running_loop().time))
    (aside,) = store.load()
    assert aside.path.name == "b.json.corrupt-1"
    assert set(store.held) == {"a"}
