"""Child processes of a bench: their output in a file, their end certain, their cost read from the kernel.

Never writes to the bench's own standard output, which is one line of JSON.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 1 << 20
BLOCK = 200
"""Ports of one block: the same grid for all, or two that take less would lie within each other."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process of ours, for as long as the bench wants it."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_there(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, number: signal.Signals = signal.SIGTERM, limit_s: float = 10.0) -> None:
        """As `end`, while everything else goes on."""
        await asyncio.to_thread(self.end, number, limit_s)

    def end(self, number: signal.Signals = signal.SIGTERM, limit_s: float = 10.0) -> None:
        """Ends it, by force if it does not listen."""
        if not self.is_there:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu_s(self) -> float:
        """Seconds of CPU it has used so far."""
        used = psutil.Process(self.pid).cpu_times()
        return used.user + used.system

    def rss_mib(self) -> float:
        return psutil.Process(self.pid).memory_info().rss / MIB


def launched(argv: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Child:
    """A process that somebody else ends. `environ`: all of its environment; None: ours."""
    with log.open("ab") as out:
        return Child(subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environ))


@contextlib.contextmanager
def child(argv: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Iterator[Child]:
    """A process that is ended with the block. `log` gets all its output."""
    made = launched(argv, log, {**os.environ, **(environ or {})})
    try:
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def free_block() -> Iterator[int]:
    """The first of `BLOCK` ports that nobody else who asks here has on this machine, below those lent to clients.

    The hold is the UDP port of the same number: it goes with this process, and leaves the TCP port to whoever serves.
    RuntimeError when all that were tried are taken.
    """
    for first in random.sample(range(10_000, 32_000, BLOCK), k=100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hold:
            try:
                hold.bind(("127.0.0.1", first))
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", first))
            except OSError:
                continue
            yield first
            return
    raise RuntimeError("100 blocks of ports are taken")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
