"""The data plane: from a client's request to an engine's answer, passed on as it comes, unbuffered, either way paced by
the slower side. Never changes anything of a body but the model's name.

Tried again on another endpoint only while the client has got no byte: after a failed connect (the request was never
sent) on every endpoint there is, after a connection that broke before any byte of the answer only once: one request
that crashes engines must not walk through a fleet. The answer decides nothing else: an engine's 5xx passes on.
"""

import asyncio
import io
import json
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import assert_never

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ConnectionTimeoutError,
    HttpVersion11,
    ServerDisconnectedError,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from llmgw.ids import ModelName
from router import answers
from router.answers import Answer, Miss
from router.asks import is_waking
from router.auth import Gate
from router.body import BadBody, ModelField, find_model
from router.call import CLIENT_GONE, Call
from router.form import FORM, FormField, find_model_in_form
from router.headers import REQUEST_ID, to_client, to_endpoint
from router.paths import PATHS
from router.routing import Candidate, Route, listed
from router.traffic import ModelCounts, Traffic
from router.uses import Use

SIDE_DOOR = "/for/{whom}"
"""The same paths below an address of its own for each sleeping model: some routers know one model by one address."""

RETRY_WINDOW_S = 10.0
"""No new attempt begins later than this after the first."""

STALE_S = 2.0
"""How long a request that no endpoint could be connected for waits for another table: an engine that died is withdrawn
within a second where the control plane is there."""

REQUEST_ID_CHARS = 128
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_WHOLE_BYTES = 1 << 20
"""Larger bodies are handed to the client session as a stream, which it sends piece by piece."""


@dataclass(frozen=True, slots=True)
class _Unreached:
    """No connection: the request was never sent."""

    cause = "unreachable"


@dataclass(frozen=True, slots=True)
class _Broken:
    """The request was sent, and no sound answer began. `again`: the connection ended without a byte of one."""

    reason: str
    again: bool
    cause = "broken"


@dataclass(slots=True)
class _Tries:
    """Where a request has been. `spare` broke off, and may be taken once more if there is no other: a kept-alive
    connection that its engine closes at this very moment looks the same as an engine that died."""

    began: float
    tried: set[Use] = field(default_factory=set)
    spare: Use | None = None
    broke: bool = False
    last: _Unreached | _Broken | None = None

    def take(self, route: Route, now: float) -> Candidate | None:
        taken = route.take(now, self.tried)
        if taken is None and self.spare is not None:
            self.tried.discard(self.spare)
            self.spare = None
            taken = route.take(now, self.tried)
        return taken

    def forget_unreached(self) -> None:
        """The table is another: whoever could not be reached may be another, too. What broke stays counted."""
        self.tried.clear()
        self.last = None

    def may_go_on(self, failed: _Unreached | _Broken, use: Use, now: float) -> bool:
        """Note a failed attempt; whether there may be another."""
        self.last = failed
        self.tried.add(use)
        if isinstance(failed, _Broken):
            if self.broke or not failed.again:
                return False
            self.broke, self.spare = True, use
        return now - self.began <= RETRY_WINDOW_S


@dataclass(frozen=True, slots=True)
class _Outbound:
    """What is sent, the same at each attempt but for the name the endpoint serves."""

    path: str
    headers: CIMultiDict[str]
    model: ModelField | FormField
    body: bytes

    def for_endpoint(self, candidate: Candidate) -> tuple[URL, bytes | io.BytesIO]:
        endpoint = candidate.endpoint
        body = self.body if endpoint.served_name == self.model.name else self.model.replaced(endpoint.served_name)
        url = URL(endpoint.url + self.path, encoded=True)
        return url, body if len(body) < _WHOLE_BYTES else io.BytesIO(body)


@dataclass(frozen=True, slots=True)
class Hold:
    """How long a request waits for a model that sleeps or starts, and how many may wait for one model."""

    limit_s: float
    requests: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a request's body. `max_body_bytes` is enforced by the server; here it is only told."""

    max_body_bytes: int
    body_limit_s: float


class Proxy:
    """Where `gate` is open, clients need no key and an Authorization header is passed on to the engine."""

    def __init__(
        self, traffic: Traffic, session: ClientSession, gate: Gate, hold: Hold, limits: Limits, log: bool
    ) -> None:
        """`log`: a line per request."""
        self._traffic = traffic
        self._session = session
        self._gate = gate
        self._hold = hold
        self._limits = limits
        self._log = log

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer one request to any of PATHS."""
        request_id = request.headers.get(REQUEST_ID, "")[:REQUEST_ID_CHARS] or os.urandom(8).hex()
        call = Call(self._traffic.clock, request.path, request_id)
        try:
            outcome = await self._answer(request, call)
            if not isinstance(outcome, Answer):
                return outcome
            response = self._missed(call, outcome)
            return await answers.last(request, response) if outcome.ends else response
        finally:
            if self._log:
                call.log()

    async def list_models(self, request: web.Request) -> web.Response:
        """`GET /v1/models`: every known name, ready or not, with its state. Asking is not use."""
        if not self._gate.admit(request.headers.get("Authorization")):
            return answers.unauthorized().response()
        routing = self._traffic.routing
        if not routing.fleets:
            return answers.no_table().response()
        return web.Response(body=routing.listing, content_type="application/json")

    async def show_model(self, request: web.Request) -> web.Response:
        """`GET /v1/models/NAME`: one name of that list, which may hold slashes. Asking is not use."""
        if not self._gate.admit(request.headers.get("Authorization")):
            return answers.unauthorized().response()
        routing, name = self._traffic.routing, request.match_info["name"]
        if not routing.fleets:
            return answers.no_table().response()
        route = routing.routes.get(name)
        if route is None:
            self._traffic.misses[Miss.UNKNOWN_MODEL] += 1
            return answers.unknown_model(name, routing.routes).response()
        body = json.dumps(listed(routing.models, route), ensure_ascii=False).encode()
        return web.Response(body=body, content_type="application/json")

    async def unknown_path(self, _: web.Request) -> web.Response:
        """Anything else: told in the shape that clients of these APIs can read."""
        self._traffic.misses[Miss.UNKNOWN_PATH] += 1
        return answers.unknown_path(PATHS).response()

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse | Answer:
        if not self._gate.admit(request.headers.get("Authorization")):
            return answers.unauthorized()
        if not self._traffic.routing.fleets:
            return answers.no_table()
        try:
            body = await self._body(request)
        except TimeoutError:
            return answers.too_slow(self._limits.body_limit_s)
        except web.HTTPRequestEntityTooLarge:
            return answers.too_large(self._limits.max_body_bytes)
        except web.RequestPayloadError:
            return answers.unreadable()
        kind = request.headers.get("Content-Type", "")
        model = find_model_in_form(body, kind) if request.content_type == FORM else find_model(body)
        if isinstance(model, BadBody):
            return answers.bad_body(model.message, self._traffic.routing.routes if model.missing else None)
        headers = to_endpoint(request.headers, keep_authorization=self._gate.open)
        headers[REQUEST_ID] = call.request_id
        query = request.rel_url.raw_query_string
        whom = request.match_info.get("whom")
        at = request.path if whom is None else request.path.removeprefix(SIDE_DOOR.format(whom=whom))
        path = f"{at}?{query}" if query else at
        return await self._forward(request, call, _Outbound(path, headers, model, body))

    async def _body(self, request: web.Request) -> bytes:
        """All of it. TimeoutError where it does not arrive in time; most are here already, and need no clock."""
        if request.content.is_eof():
            return await request.read()
        async with asyncio.timeout(self._limits.body_limit_s):
            return await request.read()

    async def _forward(self, request: web.Request, call: Call, outbound: _Outbound) -> web.StreamResponse | Answer:
        """Attempt after attempt, each with a pick from the table then in force."""
        name = outbound.model.name
        tries = _Tries(self._traffic.clock())
        while True:
            routing, now = self._traffic.routing, self._traffic.clock()
            route = routing.routes.get(name)
            if route is None:
                return answers.unknown_model(name, routing.routes)
            call.model, counts = route.models[0], self._traffic.counts(route)
            taken = tries.take(route, now)
            if taken is None:
                missing = await self._none_left(route, tries, call.started)
                if missing is None:
                    tries.began = self._traffic.clock()
                    continue
                return missing
            if tries.last is not None:
                counts.retries[tries.last.cause] += 1
            outcome = await self._attempt(request, call, taken, outbound, counts)
            if isinstance(outcome, web.StreamResponse):
                return outcome
            if not tries.may_go_on(outcome, taken.use, self._traffic.clock()):
                return _gave_up(name, outcome)

    async def _none_left(self, route: Route, tries: _Tries, came_at: float) -> Answer | None:
        """What to tell a client for whom there is no endpoint; None: the table is a new one, it may pick again."""
        asks = self._traffic.asks
        if tries.last is not None:
            until = min(self._traffic.clock() + STALE_S, came_at + self._hold.limit_s)
            if isinstance(tries.last, _Unreached) and await asks.until_changed(route, self._hold.requests, until):
                tries.forget_unreached()
                return None
            return _gave_up(route.name, tries.last)
        asks.note(route)
        miss = Miss.NOT_READY
        if is_waking(route) and self._hold.limit_s > 0:
            served = await asks.until_served(route, self._hold.requests, came_at + self._hold.limit_s)
            if served:
                return None
            miss = Miss.CROWDED if served is None else Miss.WAITED
            route = self._traffic.routing.routes.get(route.name, route)
        return answers.not_ready(route.name, route.state, asks.expected_s(route), miss)

    async def _attempt(
        self, request: web.Request, call: Call, taken: Candidate, outbound: _Outbound, counts: ModelCounts
    ) -> web.StreamResponse | _Unreached | _Broken:
        """One endpoint, from its pick to the last byte; it counts as in flight for exactly that long."""
        use = taken.use
        call.use = use
        call.attempts += 1
        try:
            upstream = await self._sent(taken, outbound)
            if not isinstance(upstream, ClientResponse):
                return upstream
            use.connected()
            try:
                response = await self._relay(request, call, upstream, counts)
            finally:
                upstream.release()  # closes what has not been read to its end, so the engine stops generating
            use.answers[call.status] += 1
            return response
        except asyncio.CancelledError:
            use.answers[CLIENT_GONE] += 1
            raise
        finally:
            self._traffic.finish(use)

    async def _sent(self, taken: Candidate, outbound: _Outbound) -> ClientResponse | _Unreached | _Broken:
        picked_at = self._traffic.clock()
        url, body = outbound.for_endpoint(taken)
        try:
            return await self._session.post(url, data=body, headers=outbound.headers, allow_redirects=False)
        except (ClientConnectorError, ConnectionTimeoutError):
            taken.use.eject(picked_at, self._traffic.clock())
            return _Unreached()
        except (ServerDisconnectedError, OSError):
            return _Broken("the connection ended", again=True)
        except ClientError as error:
            return _Broken(f"its answer is no HTTP ({type(error).__name__})", again=False)

    async def _relay(
        self, request: web.Request, call: Call, upstream: ClientResponse, counts: ModelCounts
    ) -> web.StreamResponse:
        """The answer, as it comes. Sets the call's status when it is over."""
        assert call.use is not None  # noqa: S101 - narrowing
        headers = to_client(upstream.headers, call.use.id)
        headers.setdefault(REQUEST_ID, call.request_id)
        if upstream.content.is_eof():  # all of it is here already: one write
            body = await upstream.content.read()
            self._first_byte(call, counts)
            call.sent_bytes, call.status = len(body), upstream.status
            return web.Response(status=upstream.status, reason=upstream.reason, headers=headers, body=body)
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
        try:
            await response.prepare(request)
            whole = await self._copy(call, upstream, response, counts)
        except ConnectionError:  # the client went away; its cancellation is on its way
            return response
        call.status = upstream.status
        if not whole:
            call.cause = "aborted"
            call.use.aborts += 1
            _break_off(request, response)
        return response

    async def _copy(
        self, call: Call, upstream: ClientResponse, response: web.StreamResponse, counts: ModelCounts
    ) -> bool:
        """Piece by piece; False where the engine broke off. Raises ConnectionError where the client did."""
        content = upstream.content
        while True:
            try:
                piece = await content.readany()
            except (ClientError, OSError):
                return False
            if not piece:
                await response.write_eof()
                return True
            if call.first_byte_s is None:
                self._first_byte(call, counts)
            call.sent_bytes += len(piece)
            await response.write(piece)

    def _first_byte(self, call: Call, counts: ModelCounts) -> None:
        call.first_byte_s = self._traffic.clock() - call.started
        counts.first_byte(call.first_byte_s)

    def _missed(self, call: Call, answer: Answer) -> web.Response:
        call.status, call.cause = answer.status, answer.miss
        if call.model is None:
            self._traffic.misses[answer.miss] += 1
        else:
            self._traffic.models[ModelName(call.model)].misses[answer.miss] += 1
        response = answer.response()
        response.headers[REQUEST_ID] = call.request_id
        return response


def _gave_up(name: str, failed: _Unreached | _Broken) -> Answer:
    match failed:
        case _Unreached():
            return answers.unreachable(name)
        case _Broken(reason=reason):
            return answers.broken(name, reason)
        case _:
            assert_never(failed)


def _break_off(request: web.Request, response: web.StreamResponse) -> None:
    """End the connection so that the client cannot take what it got for the whole answer: the end of the chunks, or
    of the announced length, is missing. An HTTP/1.0 client without a length only notices a reset."""
    response.force_close()
    if request.transport is None:
        return
    if request.version < HttpVersion11 and response.content_length is None:
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    else:
        request.transport.close()
