"""A batch of commands is bounded by its bytes: what does not fit follows, nothing is starved, nothing is sent twice."""

from dataclasses import replace

import pytest

from llmgw import batches, record
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import RemoveWeights
from llmgw.world import NodeTask, Outgoing, OutgoingKind, World
from sim.fleet import SimFleet

from .fleets import catalog, fleet, model

A = NodeId("a")
KIB = 1024
ANSWERED = DispatchAnswer(outcome=CallOutcome.ANSWERED)


def coming(count: int, arg_bytes: int) -> SimFleet:
    """A node that has to be told `count` starts, each with arguments of its own of so many bytes."""
    f = fleet("a", count)
    models = [model(f"m{i}", profile={"args": ["--x", f"{i}".rjust(arg_bytes, "x")]}) for i in range(count)]
    f.catalog(catalog(f, *models, policy={"max_loading_per_node": count}))
    f.nodes[A].start_s = 60.0
    return f


def world_of(f: SimFleet) -> World:
    """The world with all its starts in the outbox, and none of them told."""
    f.run(2)
    outbox = tuple(Outgoing(OutgoingKind.START, replica) for replica in sorted(f.world.assignments))
    return replace(f.world, outbox={A: outbox}, sent={}, calls={})


def size(call: DispatchCall) -> int:
    return len(call.model_dump_json())


def told(world: World) -> list[DispatchCall]:
    """Batch after batch, each answered, until one says that nothing was left behind."""
    calls: list[DispatchCall] = []
    while not calls or calls[-1].more:
        call = batches.for_node(world, A)
        assert call is not None
        calls.append(call)
        world = record.answered(
            record.sending(world, call, 0.0), call, DispatchAnswer(outcome=CallOutcome.ANSWERED), 0.0
        )
    return calls


def test_starts_that_are_large_together_are_told_in_several_batches_and_each_once() -> None:
    calls = told(world_of(coming(12, 20 * KIB)))
    assert len(calls) > 1
    assert all(size(call) <= 64 * KIB for call in calls)
    starts = [order.replica for call in calls for order in call.starts]
    first_time = starts[:12]
    assert len(set(first_time)) == 12, "what was never told goes before what only does not show yet"
    assert all(order.spec in call.specs for call in calls for order in call.starts)


def test_a_single_command_larger_than_a_batch_goes_alone() -> None:
    calls = told(world_of(coming(3, 70 * KIB)))
    assert [len(call.starts) for call in calls] == [1, 1, 1]


@pytest.mark.parametrize("count", [batches.MAX_STARTS, batches.MAX_STARTS + 1])
def test_more_starts_than_a_batch_may_have_follow_at_once(count: int) -> None:
    calls = told(world_of(coming(count, 1)))
    assert len(calls[0].starts) == batches.MAX_STARTS
    assert len(calls) == (1 if count == batches.MAX_STARTS else 2)


def test_specs_that_starts_share_count_once() -> None:
    f = fleet("a", 8)
    large = model("m", 8, profile={"args": ["x" * 30 * KIB]})
    f.catalog(catalog(f, large, policy={"max_loading_per_node": 8}))
    (call,) = told(world_of(f))
    assert len(call.starts) == 8
    assert len(call.specs) == 1


def test_stops_come_before_starts_where_not_all_fit_and_tasks_follow() -> None:
    world = world_of(coming(3, 40 * KIB))
    stop = Outgoing(OutgoingKind.STOP, ReplicaId("gone"))
    task = NodeTask("t", A, RemoveWeights(paths=("x",)), 0.0)
    outbox = {A: (*world.outbox[A], stop, Outgoing(OutgoingKind.TASK, "t"))}
    world = replace(world, outbox=outbox, wishes=replace(world.wishes, tasks=(task,)))
    call = batches.for_node(world, A)
    assert call is not None
    assert [command.kind for command in batches.command_batch(call).commands] == ["stop", "start"]
    assert call.more


def test_what_was_left_behind_is_told_right_after_the_answer() -> None:
    f = coming(6, 30 * KIB)
    f.run(3)
    assert len(f.nodes[A].starts) == 6, "not after the pace of repeats"


def test_what_was_told_and_does_not_show_is_no_reason_to_hurry() -> None:
    world = world_of(coming(6, 20 * KIB))
    world = replace(world, sent=dict.fromkeys(world.assignments, 1))
    call = batches.for_node(world, A)
    assert call is not None
    assert len(call.starts) < 6
    assert not call.more
