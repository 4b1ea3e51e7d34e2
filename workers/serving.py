"""What a worker serves beside its work: metrics, health, the page at `/`, and the targets of engines for Prometheus.

Read-only: nothing here changes the fleet. `/metrics`, `/healthz` and the empty page itself are open; everything that
names what runs wants one of the tokens, when there are any.
"""

import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from llmgw import views
from workers import metrics
from workers.meters import Meters
from workers.reading import Onlookers, read, replicas
from workflows import names
from workflows.client import Fleet

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": "index.html",
    "/style.css": "style.css",
    "/main.js": "main.js",
    "/draw.js": "draw.js",
    "/dom.js": "dom.js",
}
"""The page's own files: no build step, and nothing from anywhere else."""
OPEN = frozenset({*FILES, "/metrics", "/healthz"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
SILENT = "the fleet does not answer"


class Serving:
    """The handlers, for one fleet."""

    def __init__(self, fleet: Fleet, meters: Meters) -> None:
        self._fleet = fleet
        self._meters = meters
        self._onlookers = Onlookers(fleet)

    def routes(self) -> Sequence[web.RouteDef]:
        return (
            *(web.get(path, _file(name)) for path, name in FILES.items()),
            web.get("/metrics", self.metrics),
            web.get("/healthz", self.healthz),
            web.get("/v1/fleet", self.fleet),
            web.get("/v1/explain", self.explain),
            web.get("/v1/engines", self.engines),
        )

    async def metrics(self, _: web.Request) -> web.Response:
        body = metrics.page(self._fleet.name, await read(self._fleet), self._meters)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def fleet(self, _: web.Request) -> web.Response:
        """Everything that the page draws."""
        picture = await self._onlookers.picture()
        if picture is None:
            return _problem(503, SILENT)
        return web.json_response(
            {
                "status": _plain(picture.status),
                "models": [_plain(row) for row in picture.models],
                "replicas": [_plain(row) for row in picture.replicas],
                "nodes": [_plain(row) for row in picture.nodes],
            }
        )

    async def explain(self, request: web.Request) -> web.Response:
        """`?subject=`, as `llmgw explain` takes it."""
        try:
            found = views.Explanation.model_validate(
                await self._fleet.query(names.EXPLAIN, request.query.get("subject", ""))
            )
        except (RPCError, WorkflowQueryFailedError, TimeoutError):
            return _problem(503, SILENT)
        return web.json_response(_plain(found))

    async def engines(self, _: web.Request) -> web.Response:
        """Every engine with figures of its own, as Prometheus' `http_sd_configs` reads them."""
        rows = await replicas(self._fleet)
        if rows is None:
            return _problem(503, SILENT)  # Prometheus keeps what it had
        return web.json_response([target(self._fleet.name, row) for row in rows if row.url and row.metrics_path])


def target(fleet: str, row: views.ReplicaRow) -> dict[str, object]:
    """One engine in the form of `http_sd`: `{targets, labels}`."""
    url = urlsplit(row.url or "")
    labels = {
        "__scheme__": url.scheme,
        "__metrics_path__": url.path.rstrip("/") + (row.metrics_path or ""),
        "fleet": fleet,
        "model": row.model,
        "replica": row.id,
        "node": row.node,
        "engine": row.engine,
        "profile": row.profile,
    }
    return {"targets": [url.netloc], "labels": labels}


def _plain(view: BaseModel) -> object:
    return view.model_dump(mode="json")


def _problem(status: int, text: str) -> web.Response:
    return web.json_response({"problem": text}, status=status)


def _file(name: str) -> Callable[[web.Request], Awaitable[web.FileResponse]]:
    async def serve(_: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / name)

    return serve


# --- who may look --------------------------------------------------------------------------------------------------


def guarded(tokens: Sequence[str]) -> Middleware:
    """Lets through what is open, and whoever brings one of `tokens`; everybody when there are none."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if tokens and request.path not in OPEN and not _is_known(request, tokens):
            refused = _problem(401, "a bearer token of this fleet is wanted")
            refused.headers["WWW-Authenticate"] = 'Bearer realm="llmgw"'
            return refused
        return await handler(request)

    return guard


def _is_known(request: web.Request, tokens: Sequence[str]) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    matches = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    return scheme.lower() == "bearer" and any(matches)


async def _headed(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    if response.content_type.startswith(("text/", "application/j")) and isinstance(response, web.Response):
        response.enable_compression()


def application(fleet: Fleet, meters: Meters, tokens: Sequence[str]) -> web.Application:
    app = web.Application(middlewares=[guarded(tokens)])
    app.on_response_prepare.append(_headed)
    app.add_routes(Serving(fleet, meters).routes())
    return app


@contextlib.asynccontextmanager
async def served(fleet: Fleet, meters: Meters, listen: str, tokens: Sequence[str] = ()) -> AsyncIterator[str]:
    """Serve at HOST:PORT while inside; the URL. OSError when the address is taken."""
    runner = web.AppRunner(application(fleet, meters, tokens), access_log=None)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    try:
        yield f"http://{listen}/"
    finally:
        await runner.cleanup()
