"""The table's digest is kept by differences, and a router behind gets exactly what it lacks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llmgw import table, table_log
from llmgw.ids import ModelName, ReplicaId
from llmgw.table import Table
from llmgw.table_log import Step
from llmgw.wire import Endpoint, ModelState, TableModel

names = st.sampled_from("abcdef")
models = st.builds(
    TableModel,
    name=names,
    aliases=st.lists(st.sampled_from("xyz"), unique=True, max_size=2).map(tuple),
    state=st.sampled_from(list(ModelState)),
)
endpoints = st.builds(
    Endpoint,
    id=st.sampled_from("rstuv"),
    url=st.just("http://h:1"),
    models=names.map(lambda n: (n,)),
    served_name=names,
    engine=st.just("stub"),
    weight=st.integers(0, 3),
)
tables = st.builds(table.build, st.lists(models, max_size=5), st.lists(endpoints, max_size=5))


@given(tables, tables)
def test_applying_the_difference_gives_the_other_table_and_its_digest(old: Table, new: Table) -> None:
    change = table.difference(old, new)
    assert table.apply(old, change) == new
    assert bool(change) == (old.digest != new.digest)


@given(st.lists(tables, min_size=2, max_size=6))
def test_a_router_behind_by_any_number_of_steps_is_brought_up_by_one_difference(history: list[Table]) -> None:
    log: tuple[Step, ...] = ()
    for revision, (old, new) in enumerate(pairwise(history), start=1):
        log = table_log.append(log, Step(revision, old.digest, table.difference(old, new)))
    for revision, held in enumerate(history[:-1]):
        change = table_log.since(log, revision, held.digest)
        assert change is not None
        assert table.apply(held, change) == history[-1]


def test_a_router_that_holds_something_else_gets_no_difference() -> None:
    one = table.build([TableModel(name=ModelName("a"), state=ModelState.READY)], [])
    log = table_log.append((), Step(1, table.EMPTY_DIGEST, table.difference(table.EMPTY, one)))
    assert table_log.since(log, 0, "another") is None
    assert table_log.since(log, 7, table.EMPTY_DIGEST) is None
    assert table_log.since((), 0, table.EMPTY_DIGEST) is None


def test_only_the_newest_differences_are_kept() -> None:
    log: tuple[Step, ...] = ()
    for revision in range(1, table_log.MAX_CHANGES + 10):
        log = table_log.append(log, Step(revision, f"d{revision - 1}", table.TableChange()))
    assert len(log) == table_log.MAX_CHANGES
    assert table_log.since(log, 3, "d3") is None
    assert table_log.since(log, 40, "d40") is not None


@given(tables)
def test_the_digest_does_not_depend_on_the_order_of_items(whole: Table) -> None:
    backwards = table.table_digest(reversed(list(whole.models.values())), reversed(list(whole.endpoints.values())))
    assert backwards == whole.digest


def test_an_endpoint_counts_with_its_whole_content() -> None:
    one = Endpoint(id=ReplicaId("r"), url="http://h:1", models=("a",), served_name="a", engine="stub")
    assert table.endpoint_number(one) != table.endpoint_number(one.model_copy(update={"weight": 7}))
