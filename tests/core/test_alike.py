"""What nodes say again and again is one value, and equal to what was said."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw import alike
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.wire import Device, EngineState, Inventory, Mark, ReplicaReport

NODE = NodeId("node-a")


def row(replica: str, state: EngineState) -> ReplicaReport:
    mark = Mark(installation="i", fleet="f", replica=ReplicaId(replica), epoch=1, seq=1)
    return ReplicaReport(
        replica=mark.replica, model=ModelName("m"), mark=mark, fingerprint=Fingerprint("p"), attempt=1, state=state
    )


told = st.lists(
    st.builds(row, st.sampled_from("abc"), st.sampled_from([EngineState.READY, EngineState.LOADING])), max_size=4
).map(tuple)


@given(st.lists(told, max_size=5))
def test_what_is_given_back_equals_what_was_told(reports: list[tuple[ReplicaReport, ...]]) -> None:
    for report in reports:
        assert alike.rows(NODE, report) == report


def test_engines_of_which_nothing_new_is_told_are_the_very_same() -> None:
    first = alike.rows(NODE, (row("a", EngineState.READY), row("b", EngineState.LOADING)))
    second = alike.rows(NODE, (row("a", EngineState.READY), row("b", EngineState.READY)))
    assert second[0] is first[0]
    assert second[1] is not first[1]
    assert alike.rows(NODE, (row("a", EngineState.READY), row("b", EngineState.READY))) is second


def test_an_inventory_is_the_very_same_until_it_changes() -> None:
    def inventory(memory_mib: int) -> Inventory:
        return Inventory(devices=(Device(id=DeviceId("GPU-1"), index=0, kind="h100", memory_mib=memory_mib),))

    first = alike.inventory(NODE, inventory(1))
    assert alike.inventory(NODE, inventory(1)) is first
    assert alike.inventory(NODE, inventory(2)) == inventory(2)


def test_documents_that_name_the_same_fields_share_the_set_of_their_names() -> None:
    one, other = row("a", EngineState.READY), row("b", EngineState.FAILED)
    assert one.model_fields_set is other.model_fields_set
    copied = one.model_copy(update={"reason": "for a test"})
    assert copied.model_fields_set == {*one.model_fields_set, "reason"}
    assert "reason" not in other.model_fields_set
