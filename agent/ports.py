"""Ports for engines: found by binding, handed out in rotation, rested after use.

A port that routers may still send to must not come back as another model's; so it rests until the plane names it as
let go by every router, or an hour. It never decides who gets a port, and knows no replica.
"""

import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from agent.proc import PROC

REST_S = 3600.0


def overlap_with_clients(first: int, last: int, proc: Path = PROC) -> str:
    """Why engines may find ports of this range taken: the kernel lends them to clients. Empty when it does not."""
    settings = proc / "sys/net/ipv4"
    try:
        low, high = (int(word) for word in (settings / "ip_local_port_range").read_text().split())
        reserved = _ranges((settings / "ip_local_reserved_ports").read_text())
    except (OSError, ValueError):
        return ""
    shared = [p for p in range(max(first, low), min(last, high) + 1) if not any(a <= p <= b for a, b in reserved)]
    if not shared:
        return ""
    return (
        f"{len(shared)} of ports {first}-{last} are also lent to clients by the kernel ({low}-{high}): take a "
        f"--port-range outside, or reserve it (sysctl net.ipv4.ip_local_reserved_ports={first}-{last})"
    )


def _ranges(text: str) -> list[tuple[int, int]]:
    parts = (part.partition("-") for part in text.strip().split(",") if part)
    return [(int(low), int(high or low)) for low, _, high in parts]


class NoPort(Exception):  # noqa: N818 - a refusal, not a fault
    """Not enough free ports; the text says how the range is used."""


class Ports:
    """The range `first`..`last` (inclusive). `now_s` is the boot clock throughout."""

    def __init__(self, first: int, last: int) -> None:
        self._first = first
        self._count = last - first + 1
        self._next = 0
        self._held: dict[int, socket.socket | None] = {}
        self._resting: dict[int, float] = {}
        self._with: dict[int, int] = {}
        """An extra port that rests -> the first port of its engine."""

    def take(self, count: int, now_s: float) -> tuple[int, ...]:
        """`count` ports, each bound until `hand_over`. Raises NoPort; then none is taken."""
        self._wake(now_s)
        taken: list[int] = []
        for offset in range(self._count):
            if len(taken) == count:
                break
            port = self._first + (self._next + offset) % self._count
            if port not in self._held and port not in self._resting and (bound := _bind(port)) is not None:
                self._held[port] = bound
                taken.append(port)
        if len(taken) < count:
            self.give_back(taken)
            raise NoPort(self._told(count))
        if taken:
            self._next = (taken[-1] - self._first + 1) % self._count
        return tuple(taken)

    def hand_over(self, ports: Iterable[int]) -> None:
        """Unbind ports, so that the engine about to start can bind them; they stay taken."""
        for port in ports:
            if (bound := self._held.get(port)) is not None:
                bound.close()
            self._held[port] = None

    def give_back(self, ports: Iterable[int]) -> None:
        """Ports that no engine ever had: free at once."""
        for port in ports:
            if (bound := self._held.pop(port, None)) is not None:
                bound.close()

    def rest(self, ports: Iterable[int], now_s: float) -> None:
        """Ports of an engine that is gone: the one that routers know first."""
        ports = tuple(ports)
        self.give_back(ports)
        self._resting |= dict.fromkeys(ports, now_s)
        self._with |= dict.fromkeys(ports[1:], ports[0])

    def release(self, ports: Iterable[int]) -> None:
        """Ports that every router has let go, and the extra ones of their engines, which no router ever knew; those in
        use are not touched."""
        let_go = set(ports)
        for port in [port for port in self._resting if self._with.get(port, port) in let_go or port in let_go]:
            del self._resting[port]
            self._with.pop(port, None)

    def restore(self, resting: dict[int, float], companions: Mapping[int, int] = MappingProxyType({})) -> None:
        self._resting = dict(resting)
        self._with = dict(companions)

    @property
    def companions(self) -> dict[int, int]:
        """Extra port that rests -> the first port of its engine."""
        return {port: first for port, first in self._with.items() if port in self._resting}

    @property
    def resting(self) -> dict[int, float]:
        """Port -> moment at which its rest began."""
        return dict(self._resting)

    def _wake(self, now_s: float) -> None:
        self._resting = {port: since for port, since in self._resting.items() if now_s - since < REST_S}
        self._with = self.companions

    def _told(self, count: int) -> str:
        return (
            f"{count} of ports {self._first}-{self._first + self._count - 1} wanted: {len(self._held)} in use by "
            f"replicas, {len(self._resting)} resting, the rest bound by others; widen --port-range"
        )


def _bind(port: int) -> socket.socket | None:
    """Bound on every address: then nobody listens on any of them. Never listening, so it takes no traffic.

    Connections that the last engine has closed linger for a minute (TIME_WAIT and what comes before it). They keep a
    port from nobody who says that he knows (SO_REUSEADDR), as servers do; so from us only where there is more.
    """
    for reuse in (False, True):
        if reuse and not _only_lingers(port):
            return None
        candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        with suppress(OSError):
            candidate.bind(("", port))
            return candidate
        candidate.close()
    return None


_LISTENS = "0A"
_LINGERS = frozenset({"04", "05", "06", "09", "0B"})
"""FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING: closed on this side."""


def _only_lingers(port: int, proc: Path = PROC) -> bool:
    """Whether connections that are over are all there is of a port; false where the kernel does not tell."""
    states = {state for state, _ in _sockets_at(port, proc)}
    return bool(states) and states <= _LINGERS


def listens_at(port: int, proc: Path = PROC) -> tuple[str, ...]:
    """The addresses of this machine at which somebody listens on `port`; none where the kernel does not tell."""
    return tuple(dict.fromkeys(address for state, address in _sockets_at(port, proc) if state == _LISTENS))


def _sockets_at(port: int, proc: Path) -> Iterator[tuple[str, str]]:
    """(state, own address) of every socket with this port of its own.

    Format of /proc/net/tcp: proc_net(5); addresses are in the processor's byte order, in words of 32 bits.
    """
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError, ValueError, IndexError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                address, _, number = words[1].partition(":")
                if int(number, 16) == port:
                    raw = b"".join(
                        int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)
                    )
                    yield words[3], socket.inet_ntop(family, raw)
