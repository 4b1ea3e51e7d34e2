"""Orders: what is parsed, what is refused and why, what changes, and that a repeat changes nothing."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import Node
from llmgw.ids import ModelName, NodeId, ReplicaId
from llmgw.order import Order
from llmgw.orders import ORDERS, parse_order
from llmgw.wire import MAX_ERROR_CHARS, Token
from llmgw.world import Drain, Failure, Scale, Silence, SilenceLevel, Wishes, World

from .strategies import json_values
from .worlds import NOW, assignment, serving, world

FOREIGN = Token(installation="other", fleet="main", epoch=9, seq=1)

EXAMPLES: dict[str, tuple[object, ...]] = {
    "cordon": ({"node": "node-a"}, {"node": "node-b"}),
    "uncordon": ({"node": "node-a"},),
    "drain": ({"node": "node-a"}, {"node": "node-a", "deadline_s": 60.0}),
    "confirm-lost": ({"node": "node-b"},),
    "pull": ({"node": "node-a", "source": "hf://org/m"}, {"node": "node-a", "source": "https://h/m", "secret": "hub"}),
    "remove-weights": ({"node": "node-a", "paths": ["a", "b/c"]}, {"node": "node-a", "paths": ["a"], "dry_run": True}),
    "nodes-add": ({"id": "node-c", "url": "http://c:7070/", "zone": "z1", "labels": {"rack": "7"}},),
    "nodes-remove": ({"node": "extra"}, {"node": "extra", "force": True}, {"node": "nowhere"}),
    "routers-add": ({"id": "edge-2", "url": "http://edge-2:8081"},),
    "routers-remove": ({"router": "edge-9"},),
    "wake": ({"model": "qwen"}, {"model": "llama"}),
    "scale": ({"model": "qwen", "replicas": 1}, {"model": "qwen", "replicas": 1, "for_s": 60.0}, {"model": "qwen"}),
    "restart": ({"target": "qwen"}, {"target": "qwen-1"}),
    "promote": ({"model": "qwen"},),
    "revert": ({"model": "qwen"},),
    "nodes-confirm": ({"node": "node-b"},),
    "pause": ({}, {"reason": "by hand"}, {"reason": "by hand", "for_s": 60.0}),
    "resume": ({},),
    "takeover": ({},),
}


def busy_world() -> World:
    """Something of everything an order can meet."""
    start = serving("qwen", fenced_by=FOREIGN)
    assert start.catalog is not None
    asleep = {"name": "llama", "replicas": {"min": 0}, "profiles": [{"name": "cpu", "engine": "stub"}]}
    both = start.catalog.model_validate(
        {**start.catalog.model_dump(), "models": [*start.catalog.model_dump()["models"], asleep]}
    )
    wishes = Wishes(
        cordoned={NodeId("node-a"): 1.0},
        drains={NodeId("node-a"): Drain(1.0)},
        confirmed_machines={NodeId("node-b"): "the former machine"},
        scales={ModelName("qwen"): Scale(1)},
        added_nodes={NodeId("extra"): Node(id=NodeId("extra"), url="http://extra:7070")},
    )
    return replace(
        start,
        good={ModelName("qwen"): start.catalog},
        catalog=both,
        wishes=wishes,
        silence={"node/node-b": Silence(SilenceLevel.SUSPECT, NOW - 5)},
        assignments={**start.assignments, ReplicaId("qwen-9"): assignment("qwen-9", "qwen", "extra")},
    )


def parsed(name: str, *args: object) -> Order:
    order = parse_order(name, args)
    assert isinstance(order, Order), order
    return order


def problems(name: str, *args: object) -> tuple[str, ...]:
    found = parse_order(name, args)
    assert isinstance(found, tuple)
    return found


def test_every_order_has_examples_here() -> None:
    assert EXAMPLES.keys() == ORDERS.keys()


@pytest.mark.parametrize("kind", ORDERS.values(), ids=ORDERS.keys())
def test_an_order_explains_itself(kind: type[Order]) -> None:
    assert kind.name == kind.name.lower()
    assert 0 < len(kind.description) <= 120
    assert "\n" not in kind.description
    assert parsed(kind.name, dict(kind.example)) == kind.model_validate(dict(kind.example))
    assert all(field.description for field in kind.model_fields.values())


@pytest.mark.parametrize(("name", "raw"), [(n, raw) for n, raws in EXAMPLES.items() for raw in raws], ids=str)
def test_a_second_equal_order_changes_nothing(name: str, raw: object) -> None:
    before = busy_world()
    order = parsed(name, raw)
    assert order.check(before) == ()
    once = order.apply(before, NOW)
    assert replace(once, wishes=before.wishes) == before, "an order changes wishes only"
    for later_s in (0.0, 3.0):
        assert order.check(once) == ()
        assert order.apply(once, NOW + later_s) is once


@pytest.mark.parametrize(
    ("name", "raw"), [(n, raw) for n, raws in EXAMPLES.items() for raw in raws if n != "scale"], ids=str
)
def test_json_and_positional_arguments_mean_the_same(name: str, raw: dict[str, object]) -> None:
    order = parsed(name, raw)
    fields = list(type(order).model_fields)
    given_in_order = list(raw) == fields[: len(raw)]
    if given_in_order:
        assert parsed(name, *raw.values()) == order
        assert parsed(name, list(raw.values())) == order


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("cordn", ["node-a"], "did you mean cordon"),
        ("cordon", [], "`node` is missing"),
        ("cordon", [None], "`node` is missing"),
        ("cordon", ["node-a", "node-b"], "takes at most 1 value (node), got 2"),
        ("cordon", [{"nod": "node-a"}], "there is no field called 'nod': did you mean node?"),
        ("cordon", [7], "`node`: it must be text, not a number"),
        ("cordon", ["no blanks"], "`node`: it has characters that are not allowed there"),
        ("scale", ["qwen", "3"], "`replicas`: it must be a whole number, such as 2, not a text"),
        ("scale", ["qwen", True], "`replicas`: it must be a whole number, such as 2, not true or false"),
        ("scale", [{"model": "qwen", "replicas": -1}], "it must be at least 0"),
        ("scale", [{"model": "qwen", "replicas": 1, "for_s": 0}], "it must be above 0"),
        ("remove-weights", ["node-a"], "`paths` is missing"),
        ("remove-weights", ["node-a", []], "it must have at least 1 item"),
        ("remove-weights", ["node-a", ["a\0b"]], "`paths.0`: must not hold control characters"),
        ("nodes-add", ["x", "ftp://x"], "must be http:// or https://"),
        ("takeover", ["now"], "takes no values, got 1"),
    ],
)
def test_bad_arguments_are_named_with_a_mend(name: str, args: list[object], said: str) -> None:
    found = problems(name, *args)
    assert said in " ".join(found)
    if name in ORDERS:
        assert json.dumps(dict(ORDERS[name].example)) in " ".join(found)


def test_every_problem_is_named_at_once() -> None:
    found = problems("nodes-add", {"id": "bad id", "url": "http://u:secret@x", "colour": 1})
    assert len(found) == 4
    assert "secret" not in " ".join(found)


@given(name=st.sampled_from([*ORDERS, "nothing"]), args=st.lists(json_values(), max_size=4))
def test_parsing_never_raises_and_always_says_something(name: str, args: Sequence[object]) -> None:
    found = parse_order(name, args)
    if isinstance(found, tuple):
        assert found
        assert all(0 < len(text) <= MAX_ERROR_CHARS for text in found)
        json.dumps(found, ensure_ascii=False).encode()
    else:
        found.check(busy_world())


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("cordon", "node-z", "there is no node called 'node-z': did you mean"),
        ("drain", "gpu", "known are extra, node-a, node-b"),
        ("confirm-lost", "node-a", "node-a answers, so it is not lost"),
        ("nodes-add", {"id": "node-a", "url": "http://other:1"}, "declared in the catalog: change it there"),
        ("nodes-add", {"id": "new", "url": "http://a:7070"}, "node-a already has the URL"),
        ("nodes-add", {"id": "new", "url": "http://n:1", "pool": "gold"}, "there is no pool called 'gold'"),
        ("nodes-remove", "node-a", "take it out there"),
        ("routers-add", {"id": "edge-1", "url": "http://other:1"}, "change it there"),
        ("routers-add", {"id": "edge-2", "url": "http://edge-1:8081"}, "edge-1 already has the URL"),
        ("routers-remove", "edge-1", "take it out there"),
        ("wake", "qwn", "did you mean qwen"),
        ("scale", {"model": "qwen", "replicas": 2}, "outside its bounds (exactly 1)"),
        ("scale", {"model": "llama", "replicas": 2}, "outside its bounds (0 to 1)"),
        ("scale", {"model": "qwen", "for_s": 5.0}, "`for_s` without `replicas`"),
        ("restart", "qwen-7", "there is no model or replica called 'qwen-7'"),
    ],
)
def test_what_the_world_does_not_allow_is_refused(name: str, raw: object, said: str) -> None:
    assert said in " ".join(parsed(name, raw).check(busy_world()))


def test_an_alias_means_its_model() -> None:
    start = world("qwen")
    assert start.catalog is not None
    named = start.catalog.models[0].model_copy(update={"aliases": ("chat",)})
    aliased = replace(start, catalog=start.catalog.model_copy(update={"models": (named,)}))
    assert parsed("wake", "chat").apply(aliased, NOW).wishes.wakes == {"qwen": NOW}


def test_a_drain_keeps_its_age_and_takes_a_new_deadline() -> None:
    once = parsed("drain", "node-a").apply(world("qwen"), NOW)
    assert once.wishes.drains == {"node-a": Drain(NOW, None)}
    twice = parsed("drain", {"node": "node-a", "deadline_s": 60.0}).apply(once, NOW + 100)
    assert twice.wishes.drains == {"node-a": Drain(NOW, NOW + 160)}


def test_a_timed_scale_is_extended_by_a_later_equal_order() -> None:
    order = parsed("scale", {"model": "qwen", "replicas": 1, "for_s": 60.0})
    once = order.apply(world("qwen"), NOW)
    assert order.apply(once, NOW + 30).wishes.scales == {"qwen": Scale(1, NOW + 90)}


def test_uncordon_ends_a_drain_too() -> None:
    wishes = parsed("uncordon", "node-a").apply(busy_world(), NOW).wishes
    assert wishes.cordoned == {}
    assert wishes.drains == {}


def test_a_restart_is_repeatable_once_it_is_done() -> None:
    order = parsed("restart", "qwen")
    asked = order.apply(serving("qwen"), NOW)
    assert asked.wishes.restarts == {"qwen": NOW}
    assert order.apply(asked, NOW + 50) is asked, "the old replica still runs"
    renewed = replace(asked, assignments={ReplicaId("qwen-2"): assignment("qwen-2", "qwen", created_s=NOW + 20)})
    assert order.apply(renewed, NOW + 50).wishes.restarts == {"qwen": NOW + 50}


def test_a_wake_is_renewed_after_the_model_failed_again() -> None:
    failure = Failure(
        ReplicaId("llama-1"), NodeId("node-a"), assignment("x", "y").fingerprint, NOW + 5, False, 1, "died"
    )
    order = parsed("wake", "llama")
    asked = order.apply(busy_world(), NOW)
    failed = replace(asked, failures={ModelName("llama"): (failure,)})
    assert order.apply(failed, NOW + 9).wishes.wakes["llama"] == NOW + 9  # type: ignore[index]


def test_an_added_node_that_holds_something_leaves_and_is_not_forgotten() -> None:
    start = busy_world()
    left = parsed("nodes-remove", "extra").apply(start, NOW)
    assert left.wishes.added_nodes == {}
    assert list(left.wishes.leaving) == ["extra"]
    back = parsed("nodes-add", {"id": "extra", "url": "http://extra:7070"}).apply(left, NOW)
    assert back.wishes == start.wishes


def test_a_silent_node_removed_by_force_counts_as_lost_and_is_settled_later() -> None:
    wishes = parsed("nodes-remove", "extra", True).apply(busy_world(), NOW).wishes
    assert list(wishes.leaving) == ["extra"]
    assert wishes.confirmed_lost == {"extra": NOW}


def test_an_answering_node_removed_by_force_is_emptied_without_waiting() -> None:
    start = busy_world()
    answering = replace(start, seen={**start.seen, NodeId("extra"): start.seen[NodeId("node-a")]})
    wishes = parsed("nodes-remove", "extra", True).apply(answering, NOW).wishes
    assert wishes.drains["extra"] == Drain(NOW, NOW)  # type: ignore[index]
    assert wishes.confirmed_lost == {}


def test_removing_what_is_not_there_changes_nothing_and_warns() -> None:
    order = parsed("nodes-remove", "node-z")
    assert order.check(busy_world()) == ()
    assert "did you mean" in order.warnings(busy_world())[0]


def test_weights_are_removed_by_one_task_until_the_node_answered() -> None:
    order = parsed("remove-weights", "node-a", ["a"])
    start = busy_world()
    once = order.apply(start, NOW)
    (task,) = once.wishes.tasks
    assert (task.node, task.command.kind) == ("node-a", "remove_weights")
    answered = replace(once, wishes=start.wishes)
    assert order.apply(answered, NOW + 60).wishes.tasks[0].id != task.id


def test_a_takeover_is_recorded_only_while_somebody_else_commands() -> None:
    order = parsed("takeover")
    assert order.apply(world("qwen"), NOW).wishes.takeover_s is None
    assert order.warnings(world("qwen")) != ()
    assert order.apply(busy_world(), NOW).wishes.takeover_s == NOW
