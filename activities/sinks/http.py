"""HTTP clients for other people's routers: without the plane's token, and with one TLS context for all of them."""

import functools
import ssl
from collections.abc import Mapping

import httpx

CALL_LIMIT_S = 2.0


@functools.cache
def _tls() -> ssl.SSLContext:
    """Making one costs some 20 ms, more than all calls to a router."""
    return httpx.create_ssl_context()


def client_of(url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=CALL_LIMIT_S, verify=_tls(), trust_env=False)
