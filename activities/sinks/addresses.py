"""From an endpoint's URL to the `IP:PORT` that routers without a resolver of their own take."""

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from llmgw.ids import ReplicaId
from llmgw.wire import Endpoint


@dataclass(frozen=True, slots=True)
class Resolved:
    """Addresses by endpoint; and why the others have none."""

    addresses: Mapping[ReplicaId, str]
    left_out: Mapping[ReplicaId, str]


async def resolve(
    endpoints: Iterable[Endpoint], known: Mapping[ReplicaId, str], below: Collection[ReplicaId] = ()
) -> Resolved:
    """`known`: addresses of some of them, which need not be looked up again. `below`: those that may have a path. One
    host that is not known spoils only its own endpoints."""
    new = [(e, urlsplit(e.url)) for e in endpoints if e.id not in known]
    names = {parts.hostname for _, parts in new if parts.hostname}
    hosts = {name: found for name in names if (found := _literal(name))}
    names -= hosts.keys()
    hosts |= zip(names, await asyncio.gather(*map(_lookup, names)), strict=True)
    addresses, left_out = dict(known), dict[ReplicaId, str]()
    for endpoint, parts in new:
        address = hosts.get(parts.hostname or "")
        if parts.scheme != "http" or (parts.path not in ("", "/") and endpoint.id not in below):
            left_out[endpoint.id] = f"{endpoint.url} is no plain http://HOST:PORT"
        elif not address:
            left_out[endpoint.id] = f"the name {parts.hostname} is not known on this host"
        else:
            addresses[endpoint.id] = f"{address}:{parts.port or 80}"
    return Resolved(addresses, left_out)


def _literal(host: str) -> str:
    """The address where the host is one; else empty."""
    try:
        return _written(ipaddress.ip_address(host))
    except ValueError:
        return ""


async def _lookup(host: str) -> str:
    """The address as it is written before a port; empty when the name is not known. IPv4 goes first."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    first = min(found, key=lambda info: info[0] is not socket.AF_INET)
    return _written(ipaddress.ip_address(str(first[4][0])))


def _written(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


def host_of(url: str) -> str:
    """The host of a plain `http://HOST:PORT`, which this is for, without a whole parser's work."""
    authority = url.partition("://")[2].partition("/")[0]
    host, colon, port = authority.rpartition(":")
    return (host if colon and port.isdigit() else authority).strip("[]")


def split(address: str) -> tuple[str, int]:
    """IP without brackets, and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
