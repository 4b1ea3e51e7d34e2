"""What every kind of router sink does: apply a difference, or a whole table, and acknowledge it."""

from typing import Protocol

from llmgw.calls import PublishCall
from llmgw.wire import RouterTable, TableReply


class Sink(Protocol):
    async def patch(self, call: PublishCall) -> TableReply: ...

    async def put(self, call: PublishCall, table: RouterTable) -> TableReply: ...
