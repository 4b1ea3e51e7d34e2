"""Our own router: one atomic table, patched by difference. Expresses everything a table holds."""

from activities.outward import Callers
from llmgw.calls import PublishCall
from llmgw.wire import RouterTable, TablePatch, TableReply


class NativeSink:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def patch(self, call: PublishCall) -> TableReply:
        """Send the difference. `RefusedError` with `base_differs` when the router holds something else."""
        if call.delta is None:
            raise ValueError("a patch needs a delta")
        body = TablePatch(token=call.token, **call.delta.model_dump())
        return await self._send("PATCH", call.url, body)

    async def put(self, call: PublishCall, table: RouterTable) -> TableReply:
        """Send the whole table."""
        return await self._send("PUT", call.url, table)

    async def _send(self, method: str, url: str, body: TablePatch | RouterTable) -> TableReply:
        return TableReply.model_validate_json(await self._callers.send(method, url, "/v1/table", body))
