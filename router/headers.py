"""Which headers pass through a proxy, in each direction (RFC 9110, section 7.6.1). Pure."""

from multidict import CIMultiDict, CIMultiDictProxy

REPLICA = "x-llmgw-replica"
REQUEST_ID = "x-request-id"

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_REQUEST_ONLY = _HOP_BY_HOP | {
    "host",  # the endpoint's own
    "content-length",  # of the body as rewritten
    "content-encoding",  # the server has decoded it
    "expect",  # answered here
}
_AUTHORIZATION = "authorization"


def to_endpoint(headers: CIMultiDictProxy[str], keep_authorization: bool) -> CIMultiDict[str]:
    """A client's headers as an engine gets them. A key that was for this router goes no further."""
    dropped = _dropped(headers, _REQUEST_ONLY)
    if not keep_authorization:
        dropped |= {_AUTHORIZATION}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


def to_client(headers: CIMultiDictProxy[str], replica: str) -> CIMultiDict[str]:
    """An engine's headers as the client gets them, with the replica that answered."""
    dropped = _dropped(headers, _HOP_BY_HOP)
    passed = CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
    passed[REPLICA] = replica
    return passed


def _dropped(headers: CIMultiDictProxy[str], always: frozenset[str]) -> frozenset[str]:
    """`always`, and what the sender itself names as meant for this hop only."""
    connection = headers.get("connection")
    if connection is None or connection.lower() in ("keep-alive", "close"):
        return always
    return always | {name.strip().lower() for name in connection.split(",")}
