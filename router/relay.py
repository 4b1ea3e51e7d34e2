"""The control API at a process that serves clients: passed on to the keeper, which owns it. Never judges a request."""

import contextlib

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from router import answers
from router.control import unreadable
from router.headers import to_client, to_endpoint

NOT_THERE = "the keeper of this router does not answer\n"


class Relay:
    """`keeper`: its URL on this machine."""

    def __init__(self, keeper: str, session: ClientSession) -> None:
        self._keeper = keeper
        self._session = session

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Request and answer as they come; a reader that goes away ends both."""
        headers = to_endpoint(request.headers, keep_authorization=True)
        body = request.content if request.can_read_body else None
        try:
            async with self._session.request(
                request.method, self._keeper + request.path_qs, data=body, headers=headers, timeout=ClientTimeout(None)
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=to_client(answer.headers, ""))
                response.headers.popall("x-llmgw-replica")
                await response.prepare(request)
                with contextlib.suppress(ClientError, ConnectionError):  # either side is gone: so is the other
                    async for piece in answer.content.iter_any():
                        await response.write(piece)
                    await response.write_eof()
                return response
        except ClientError:
            if request.content.exception() is not None:  # it is the reader's body that failed
                return await answers.last(request, unreadable())
            return web.Response(status=503, text=NOT_THERE, headers={"Retry-After": "1"})
