"""Facts from answers and observations: ordering, fencing, and what a failed call may say."""

from dataclasses import replace

import pytest

from llmgw import batches, record
from llmgw.calls import (
    CallOutcome,
    DispatchAnswer,
    DispatchCall,
    PublishAnswer,
    PublishCall,
    StartOrder,
    TaskResult,
)
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.observation import NodeSeen, Observation, RouterSeen, SilenceSeen, TroubleSeen
from llmgw.wire import (
    BatchReply,
    CommandResult,
    Device,
    EngineState,
    HeldTable,
    Inventory,
    Mark,
    Outcome,
    Owner,
    Refusal,
    RefusalCode,
    RemoveWeights,
    ReplicaReport,
    Stop,
    Token,
)
from llmgw.world import NodeTask, RouterFacts, Silence, SilenceLevel, Wishes, World
from tests.core.worlds import row
from tests.core.worlds import seen as node_seen

NODE, ROUTER, REPLICA = NodeId("n1"), RouterId("r1"), ReplicaId("m-1")
WORLD = World(fleet="f", installation="i", epoch=3, seq=10)


def token(seq: int, epoch: int = 3, installation: str = "i") -> Token:
    return Token(installation=installation, fleet="f", epoch=epoch, seq=seq)


def seen(revision: int, instance: str = "a", boot: str = "b", inventory: Inventory | None = None) -> Observation:
    node = NodeSeen(node=NODE, machine="m", boot=boot, instance=instance, revision=revision, inventory=inventory)
    return Observation(pool="p", cursor=revision, nodes=(node,))


INVENTORY = Inventory(devices=(Device(id=DeviceId("GPU-1"), index=0, kind="h100"),))


def test_an_inventory_told_once_stays_until_the_boot_changes() -> None:
    world = record.observed(WORLD, seen(1, inventory=INVENTORY), 0.0)
    world = record.observed(world, seen(2), 0.0)
    assert world.seen[NODE].inventory == INVENTORY
    world = record.observed(world, seen(1, instance="z", boot="another"), 0.0)
    assert world.seen[NODE].inventory == Inventory(complete=False), "not knowing is not an empty machine"


def test_a_run_that_remembers_nothing_takes_the_ages_that_it_is_told() -> None:
    row = ReplicaReport(
        replica=REPLICA,
        model="m",
        mark=Mark(installation="i", fleet="f", replica=REPLICA, epoch=3, seq=1),
        fingerprint=Fingerprint("f"),
        attempt=1,
        state=EngineState.READY,
    )
    first = seen(1).model_copy(
        update={"nodes": (seen(1).nodes[0].model_copy(update={"replicas": (row,), "ages_s": (420,)}),)}
    )
    later = seen(2).model_copy(update={"nodes": (seen(2).nodes[0].model_copy(update={"replicas": (row,)}),)})
    world = record.observed(WORLD, first, 1000.0)
    assert world.seen[NODE].since == {REPLICA: 580.0}
    assert record.observed(world, later, 1030.0).seen[NODE].since == {REPLICA: 580.0}


def test_an_older_report_of_the_same_agent_is_dropped_and_of_another_instance_taken() -> None:
    world = record.observed(WORLD, seen(5, inventory=INVENTORY), 0.0)
    assert record.observed(world, seen(4), 0.0).seen[NODE].revision == 5
    assert record.observed(world, seen(1, instance="new"), 0.0).seen[NODE].instance == "new"


def test_silence_and_troubles_are_kept_and_forgotten_with_the_pool() -> None:
    facts = Observation(
        pool="p",
        cursor=1,
        silence=(SilenceSeen(target="node/n1", level=SilenceLevel.SUSPECT, silent_s=11),),
        troubles=(TroubleSeen(target="node/n1", text="cannot connect"),),
    )
    world = record.observed(WORLD, facts, 50.0)
    assert world.silence["node/n1"] == Silence(SilenceLevel.SUSPECT, 39.0), "since the last beat"
    assert world.troubles == {"node/n1": "cannot connect"}
    healed = Observation(pool="p", cursor=2, troubles=(TroubleSeen(target="node/n1", text=""),))
    assert record.observed(world, healed, 51.0).troubles == {}
    assert record.forget_silence(world).silence == {}


@pytest.mark.parametrize(
    ("held_seq", "counts"),
    [(7, False), (8, True), (9, True)],
    ids=["older than acknowledged", "the acknowledged", "newer"],
)
def test_a_routers_state_counts_only_if_no_older_than_what_it_acknowledged(held_seq: int, counts: bool) -> None:
    facts = RouterFacts(acked_revision=4, acked_seq=8, acked_digest="mine", held_digest="mine", held_seq=8)
    world = replace(WORLD, routers={ROUTER: facts})
    state = RouterSeen(router=ROUTER, instance="x", revision=1, held=HeldTable(token=token(held_seq), digest="other"))
    after = record.observed(world, Observation(pool="p", cursor=1, routers=(state,)), 0.0)
    assert (after.routers[ROUTER].held_digest == "other") == counts


def test_a_router_without_a_table_of_ours_is_seen_to_hold_none() -> None:
    world = replace(WORLD, routers={ROUTER: RouterFacts(acked_digest="d", held_digest="d", held_seq=3)})
    state = RouterSeen(router=ROUTER, instance="x", revision=1, held=None)
    after = record.observed(world, Observation(pool="p", cursor=1, routers=(state,)), 0.0)
    assert after.routers[ROUTER].held_digest == ""


def state(instance: str, seq: int | None, draining: tuple[str, ...] = ()) -> Observation:
    held = None if seq is None else HeldTable(token=token(seq), digest=f"table-{seq}")
    busy = tuple(map(ReplicaId, draining))
    seen = RouterSeen(router=ROUTER, instance=instance, revision=1, held=held, draining=busy)
    return Observation(pool="p", cursor=1, routers=(seen,))


def test_a_router_that_lost_its_table_while_an_answer_was_under_way_is_believed_and_not_the_answer() -> None:
    world = record.observed(WORLD, state("r-1", None), 0.0)
    push = PublishCall(router=ROUTER, kind="native", url="http://r", token=token(11), revision=7)
    answer = PublishAnswer(outcome=CallOutcome.ANSWERED, revision=7, digest="table-11")
    sent = record.pushing(world, push, 1.0)
    assert record.published(sent, push, answer, 2.0).routers[ROUTER].held_digest == "table-11"
    wiped = record.observed(sent, state("r-2", None), 1.5)
    assert record.published(wiped, push, answer, 2.0).routers[ROUTER].held_digest == ""


def test_requests_in_flight_count_whichever_instance_of_a_router_has_them() -> None:
    """The new instance's state may be older than the table that it has just taken, and the answer may be the former
    one's: a replica is without requests only when both say so."""
    world = record.observed(WORLD, state("r-1", 9), 0.0)
    push = PublishCall(router=ROUTER, kind="native", url="http://r", token=token(11), revision=7)
    sent = record.pushing(world, push, 1.0)
    anew = record.observed(sent, state("r-2", 9, draining=("m-2",)), 1.5)
    answer = PublishAnswer(outcome=CallOutcome.ANSWERED, revision=7, digest="table-11", draining=(REPLICA,))
    answered = record.published(anew, push, answer, 2.0)
    assert answered.routers[ROUTER].draining == {REPLICA, "m-2"}
    later = record.observed(answered, state("r-2", 11), 3.0)
    assert later.routers[ROUTER].draining == frozenset()


def test_an_older_table_counts_only_from_a_router_that_began_anew() -> None:
    facts = RouterFacts(acked_seq=11, acked_digest="table-11", held_digest="table-11", held_seq=11, instance="r-1")
    world = replace(WORLD, routers={ROUTER: facts})
    assert record.observed(world, state("r-1", 9), 0.0).routers[ROUTER].held_digest == "table-11"
    assert record.observed(world, state("r-2", 9), 0.0).routers[ROUTER].held_digest == "table-9"


CALL = DispatchCall(node=NODE, url="http://h", token=token(11), stops=(Stop(replica=REPLICA),))


def test_a_sending_uses_its_token_up_and_each_replica_remembers_it() -> None:
    world = record.sending(WORLD, CALL, 4.0)
    assert world.seq == 11
    assert world.sent == {REPLICA: 11}
    assert world.calls[NODE].asked_s == 4.0


def test_a_failed_call_says_something_about_that_call_only() -> None:
    failed = DispatchAnswer(outcome=CallOutcome.FAILED, text="no answer in time")
    world = record.answered(record.answered(WORLD, CALL, failed, 1.0), CALL, failed, 2.0)
    assert (world.calls[NODE].failures, world.calls[NODE].failed_s) == (2, 2.0)
    assert (world.silence, world.seen, world.fenced_by, world.overtaken_by) == ({}, {}, None, None)
    world = record.answered(world, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED), 3.0)
    assert (world.calls[NODE].failures, world.calls[NODE].told_s) == (0, 3.0)


def test_a_refusal_is_kept_until_the_next_answer() -> None:
    refusal = Refusal(code=RefusalCode.NO_PORT, message="all in use")
    no = CommandResult(subject=REPLICA, outcome=Outcome.REFUSED, refusal=refusal)
    world = record.answered(WORLD, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED, refused=(no,)), 5.0)
    assert world.refused[REPLICA].code is RefusalCode.NO_PORT
    world = record.answered(world, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED), 6.0)
    assert world.refused == {}


def test_what_an_answer_proves_gone_is_out_of_the_report_and_of_nothing_else() -> None:
    reports = (row("m-1", "m", EngineState.FAILED), row("m-2", "m"))
    before = replace(
        WORLD, seen={NODE: node_seen(NODE, *reports)}, sent={REPLICA: 11, ReplicaId("m-2"): 9, ReplicaId("m-3"): 11}
    )
    after = record.answered(before, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED, gone=(REPLICA,)), 1.0)
    assert [r.replica for r in after.seen[NODE].replicas] == ["m-2"]
    assert after.seen[NODE].token == before.seen[NODE].token, "of what it has not listed it says nothing"
    assert after.sent == {REPLICA: 0, ReplicaId("m-2"): 9, ReplicaId("m-3"): 11}
    unheard = replace(before, seen={})
    assert record.answered(unheard, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED, gone=(REPLICA,)), 1.0).seen == {}


def test_only_what_a_batch_has_stopped_is_taken_for_gone() -> None:
    call = CALL.model_copy(
        update={
            "starts": (
                StartOrder(
                    replica=ReplicaId("m-9"), model=ModelName("m"), fingerprint="p", attempt=1, spec=SpecId("s")
                ),
            )
        }
    )
    results = (
        CommandResult(subject=REPLICA, outcome=Outcome.ACCEPTED, gone=True),
        CommandResult(subject="m-9", outcome=Outcome.ACCEPTED, gone=True),
    )
    answer = batches.answer_of(call, BatchReply(token=CALL.token, results=results))
    assert answer.gone == (REPLICA,)
    assert not answer.is_plain(), "it calls for a decision"


def test_an_answered_task_is_done() -> None:
    task = NodeTask("t1", NODE, RemoveWeights(paths=("a",)), 0.0)
    world = replace(WORLD, wishes=Wishes(tasks=(task, replace(task, id="t2"))))
    done = TaskResult(task="t1", result=CommandResult(subject="remove_weights", outcome=Outcome.ACCEPTED))
    world = record.answered(world, CALL, DispatchAnswer(outcome=CallOutcome.ANSWERED, tasks=(done,)), 1.0)
    assert [t.id for t in world.wishes.tasks] == ["t2"]


@pytest.mark.parametrize(
    ("held", "outcome", "fenced", "overtaken"),
    [
        (token(99), CallOutcome.STALE, False, True),
        (token(5), CallOutcome.STALE, False, False),
        (token(1, epoch=4), CallOutcome.STALE, True, False),
        (token(1, installation="other"), CallOutcome.FOREIGN, True, False),
    ],
    ids=["higher seq: overtaken", "a late packet of ours", "higher epoch: fenced", "another installation: fenced"],
)
def test_who_holds_a_newer_token_decides_what_we_are(
    held: Token, outcome: CallOutcome, fenced: bool, overtaken: bool
) -> None:
    push = PublishCall(router=ROUTER, kind="native", url="http://r", token=token(11), revision=1)
    world = record.published(WORLD, push, PublishAnswer(outcome=outcome, held=held), 1.0)
    assert (world.fenced_by is not None, world.overtaken_by is not None) == (fenced, overtaken)


def test_an_agent_of_another_installation_fences_nobody() -> None:
    owner = Owner(installation="other", fleet="f")
    answer = DispatchAnswer(
        outcome=CallOutcome.FOREIGN, held=token(1, installation="other"), owner=owner, text="theirs"
    )
    world = record.answered(WORLD, CALL, answer, 1.0)
    assert world.fenced_by is None
    assert world.calls[NODE].problem == "theirs"


def test_an_acknowledged_table_is_what_the_router_holds() -> None:
    push = PublishCall(router=ROUTER, kind="native", url="http://r", token=token(11), revision=1)
    answer = PublishAnswer(outcome=CallOutcome.ANSWERED, revision=3, digest="d", draining=(REPLICA,))
    facts = record.published(WORLD, push, answer, 7.0).routers[ROUTER]
    assert facts == RouterFacts(3, 11, "d", "d", 11, frozenset({REPLICA}), confirmed_s=7.0)
