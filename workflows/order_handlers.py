"""One signal and one update per operator order, made from the table in `llmgw.orders`. They record and return."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow

from llmgw.orders import ORDERS
from llmgw.plan import Verdict
from llmgw.world import InputKind


class OrderHandlers:
    """Mixed into the workflow class; the handlers are added below, one pair per row."""

    async def _updated(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> Verdict:
        raise NotImplementedError

    def _signalled(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def _admit(self, args: Sequence[object]) -> None:
        raise NotImplementedError


def _signal(name: str, description: str) -> Callable[..., None]:
    def handle(self: OrderHandlers, *args: Any) -> None:
        self._signalled(InputKind.ORDER, name, args)

    handle.__name__ = f"signal_{name.replace('-', '_')}"
    handle.__qualname__ = f"OrderHandlers.{handle.__name__}"
    return workflow.signal(name=name, description=description)(handle)


def _update(name: str, description: str) -> Callable[..., Any]:
    async def handle(self: OrderHandlers, *args: Any) -> Verdict:
        return await self._updated(InputKind.ORDER, name, args)

    handle.__name__ = f"update_{name.replace('-', '_')}"
    handle.__qualname__ = f"OrderHandlers.{handle.__name__}"
    made = workflow.update(name=name, description=description)(handle)
    made.validator(_admit)
    return made


def _admit(self: OrderHandlers, *args: Any) -> None:
    self._admit(args)


for _order, _kind in sorted(ORDERS.items()):
    _made_signal = _signal(_order, _kind.description)
    _made_update = _update(_order, _kind.description)
    setattr(OrderHandlers, _made_signal.__name__, _made_signal)
    setattr(OrderHandlers, f"update_{_order.replace('-', '_')}", _made_update)
