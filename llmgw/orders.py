"""The one table of operator orders, and how what somebody sent becomes one of them.

Signal and update handlers and the commands of `llmgw` are made from `ORDERS`. To add an order: a class in
`llmgw/node_orders.py`, `model_orders.py` or `fleet_orders.py`, and its row here.
"""

import json
from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmgw.fleet_orders import PauseFleet, Resume, RoutersAdd, RoutersRemove, Takeover
from llmgw.misfit import plain_words
from llmgw.model_orders import Promote, Restart, Revert, ScaleModel, Wake
from llmgw.node_orders import (
    ConfirmLost,
    Cordon,
    DrainNode,
    NodesAdd,
    NodesConfirm,
    NodesRemove,
    PullWeights,
    RemoveWeights,
    Uncordon,
)
from llmgw.order import Order, Problems
from llmgw.sentences import counted, cut, json_kind, unknown

ORDERS: Mapping[str, type[Order]] = {
    order.name: order
    for order in (
        Cordon,
        Uncordon,
        DrainNode,
        ConfirmLost,
        PullWeights,
        NodesConfirm,
        RemoveWeights,
        NodesAdd,
        NodesRemove,
        RoutersAdd,
        RoutersRemove,
        Wake,
        ScaleModel,
        Restart,
        Promote,
        Revert,
        PauseFleet,
        Resume,
        Takeover,
    )
}
"""Every order by its name."""


def parse_order(name: str, args: Sequence[object]) -> Order | Problems:
    """The order that `args`, as sent, mean; or every problem with them, as sentences that say how to mend it.

    `args` is one JSON object, or the values of the first fields in order (so a bare string will do for most).
    """
    kind = ORDERS.get(name)
    if kind is None:
        return (unknown("order", name, ORDERS),)
    fields = _named(kind, args)
    if isinstance(fields, str):
        return (fields,)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        found = (_sentence(kind, detail) for detail in error.errors(include_url=False, include_context=False))
        return (*dict.fromkeys(found), _example(kind))


def _named(kind: type[Order], args: Sequence[object]) -> Mapping[str, object] | str:
    """The fields by name, or the problem with the number of values."""
    values = [value for value in args if value is not None] if len(args) == 1 else list(args)
    if len(values) == 1 and isinstance(values[0], Mapping):
        return values[0]
    if len(values) == 1 and isinstance(values[0], list | tuple):
        values = list(values[0])
    names = list(kind.model_fields)
    if len(values) <= len(names):
        return dict(zip(names, values, strict=False))
    takes = "no values" if not names else f"at most {counted(len(names), 'value')} ({', '.join(names)})"
    return f"{kind.name} takes {takes}, got {len(values)}. {_example(kind)}"


def _sentence(kind: type[Order], detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return unknown("field", where, kind.model_fields)
    if detail["type"] == "missing":
        return f"`{cut(where, 80)}` is missing"
    got = f", not {json_kind(detail['input'])}" if detail["type"].endswith("_type") else ""
    return cut(f"`{cut(where, 80)}`: {plain_words(detail['msg'])}{got}")


def _example(kind: type[Order]) -> str:
    return cut(f"For example: {json.dumps(dict(kind.example))}")
