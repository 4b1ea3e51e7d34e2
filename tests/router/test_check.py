"""A wrong table is told whole."""

import pytest

from llmgw.table import build
from router.check import SHOWN, name_conflicts, table_problems, told

from .rig import endpoint, model


def test_every_problem_is_named_with_both_owners() -> None:
    models = (model("m", "chat"), model("m"), model("n", "chat", "m"))
    endpoints = (
        endpoint("e-1", "http://127.0.0.1:1/"),
        endpoint("e-1"),
        endpoint("e-2", "ftp://127.0.0.1:1", "gone"),
        endpoint("e-3", "http://127.0.0.1:1", "n", "nobody"),
        endpoint("e-4", "http://user:secret@127.0.0.1:1"),
        endpoint("e-5", "http://127.0.0.1:99999"),
        endpoint("e-6", "http://127.0.0.1:1?x=1"),
        endpoint("e-7", "http://"),
        endpoint("e-8", "http://127.0.0.1:1 2"),
    )
    text = "\n".join(table_problems(models, endpoints))
    for expected in (
        "model 'm' is given 2 times",
        "name 'chat' is claimed by 'm' and 'n'",
        "name 'm' is claimed by 'm' and 'n'",
        "endpoint 'e-1' is given 2 times",
        "endpoint 'e-1': url 'http://127.0.0.1:1/' ends with a slash",
        "endpoint 'e-2' names model 'gone', which the table does not have",
        "'ftp://127.0.0.1:1' is not http:// or https://",
        "endpoint 'e-3' answers to 'nobody', which is no alias of its model 'n'",
        "endpoint 'e-4': url 'http://user:secret@127.0.0.1:1' carries credentials",
        "'http://127.0.0.1:99999' is not a URL",
        "'http://127.0.0.1:1?x=1' has a query",
        "'http://' ends with a slash",
        "holds a space",
    ):
        assert expected in text


def test_a_sound_table_has_no_problem() -> None:
    models = (model("m", "chat", "m"), model("Qwen/x:Q4_K_M"))
    endpoints = (
        endpoint("m-1", "https://[::1]:8443/base", "m", "chat"),
        endpoint("q-1", "http://gpu-07.lan:9000", "Qwen/x:Q4_K_M"),
    )
    assert table_problems(models, endpoints) == []


def test_a_name_may_not_be_a_model_here_and_an_alias_there() -> None:
    held = {"a": build((model("big", "chat"),), ()), "f": build((model("chat"),), ())}
    assert name_conflicts("f", build((model("chat"), model("other", "big")), ()), held) == [
        "'big' is an alias of 'other' in fleet 'f' and a model in fleet 'a': rename one of them",
        "'chat' is an alias of 'big' in fleet 'a' and a model in fleet 'f': rename one of them",
    ]
    assert name_conflicts("f", build((model("big", "chat"), model("small")), ()), held) == []


@pytest.mark.parametrize(("count", "tail"), [(SHOWN, f"p{SHOWN - 1}"), (SHOWN + 7, "and 7 more")])
def test_very_many_problems_are_counted(count: int, tail: str) -> None:
    assert told([f"p{i}" for i in range(count)]).endswith(tail)
