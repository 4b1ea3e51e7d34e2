"""`llmgw doctor`, this machine's half: disk, ports for engines, the token file, engines that could be started.

Judges by the variables that an agent on this machine would read. Looks only; the ports it tries are let go at once.
"""

import re
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cli.checkup import Checked, doubt, fine, wrong

LEAST_FREE_GB, FULL_SHARE = 20, 0.95
"""Weights are tens of gigabytes; a file system this full fails at the next log line."""

LEAST_HANDLES = 4096
"""Fewer, and an agent complains too (`agent.handles`)."""

STATE, RANGE, TOKENS, WEIGHTS = (
    "LLMGW_AGENT_STATE_DIR",
    "LLMGW_AGENT_PORT_RANGE",
    "LLMGW_TOKEN_FILE",
    "LLMGW_AGENT_WEIGHTS_ROOT",
)
USUAL_RANGE = "21000-21999"
TRIED_PORTS = 200
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

ENGINES = ("vllm", "llama-server", "python3")
BESIDE = ("vllm", "llama-server", "llama-server-vulkan")
"""Engines that packages of Python bring along."""


def machine_checks(environment: Mapping[str, str]) -> Iterator[Checked]:
    """Everything about this machine, in the order it is shown."""
    for check in CHECKS:
        yield from check(environment)


def _disks(environment: Mapping[str, str]) -> Iterator[Checked]:
    for variable in (STATE, WEIGHTS):
        if variable == STATE or environment.get(variable):
            yield _disk(Path(environment.get(variable) or "."), variable)


def _disk(path: Path, variable: str) -> Checked:
    subject = f"disk of {path}"
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    try:
        usage = shutil.disk_usage(there)
    except OSError as error:
        return wrong(subject, f"cannot be looked at: {error.strerror}", f"name another folder in {variable}")
    free_gb = usage.free / 1e9
    if usage.used > FULL_SHARE * usage.total or free_gb < 1:
        return wrong(subject, f"{free_gb:.1f} GB free: it is full", "make room, or name another disk")
    if free_gb < LEAST_FREE_GB:
        return doubt(subject, f"{free_gb:.1f} GB free", "weights and logs may not fit: make room")
    return fine(subject, f"{free_gb:,.0f} GB free")


def _ports(environment: Mapping[str, str]) -> Iterator[Checked]:
    text = environment.get(RANGE) or USUAL_RANGE
    matched = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    first, last = (int(matched[1]), int(matched[2])) if matched else (0, 0)
    if not 0 < first <= last <= 65535:
        yield wrong("ports for engines", f"{text} is no range", f"write {RANGE}={USUAL_RANGE}")
        return
    tried = range(first, min(last + 1, first + TRIED_PORTS))
    taken = [port for port in tried if not _is_free(port)]
    if len(taken) == len(tried):
        yield wrong("ports for engines", f"none of {text} is free", f"give engines another range: {RANGE}")
    elif len(taken) > len(tried) // 2:
        yield doubt("ports for engines", f"{len(taken)} of {len(tried)} are taken", f"widen the range: {RANGE}")
    else:
        yield fine("ports for engines", f"{text}, {len(tried) - len(taken)} of {len(tried)} tried are free")
    yield from _overlap(first, last)


def _overlap(first: int, last: int) -> Iterator[Checked]:
    """The system hands out ports of its own range to outgoing connections: an engine's port may be taken so."""
    try:
        low, high = (int(word) for word in EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        return
    if first <= high and low <= last:
        what = f"{first}-{last} overlaps {low}-{high}, from which the system gives ports to outgoing connections"
        yield doubt("ports for engines", what, f"choose one below {low} ({RANGE}), or narrow {EPHEMERAL}")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _handles(_: Mapping[str, str]) -> Iterator[Checked]:
    """An agent raises its own soft limit, and so its engines', up to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard < LEAST_HANDLES:
        what = f"a process may have {hard} open: an engine takes one or more a request"
        yield doubt(
            "file handles", what, f"raise the hard limit to {LEAST_HANDLES} or more (LimitNOFILE, `ulimit -Hn`)"
        )
    else:
        yield fine("file handles", "no limit" if hard < 0 else f"up to {hard:,} for the agent and each engine")


def _token_file(environment: Mapping[str, str]) -> Iterator[Checked]:
    path = environment.get(TOKENS)
    if not path:
        yield doubt("token file", "none is named", f"agents and routers beyond loopback want one: {TOKENS}=FILE")
        return
    try:
        mode, text = Path(path).stat().st_mode, Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        yield wrong("token file", f"cannot read {path}: {reason}", "make it, with `openssl rand -hex 32` on a line")
        return
    tokens = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if not tokens:
        yield wrong("token file", f"{path} holds no token", "put one on its first line: `openssl rand -hex 32`")
    elif mode & (stat.S_IRGRP | stat.S_IROTH):
        yield doubt("token file", f"others may read {path}", f"chmod 600 {path}")
    else:
        yield fine("token file", f"{len(tokens)} tokens" if len(tokens) > 1 else "1 token")


def _engines(environment: Mapping[str, str]) -> Iterator[Checked]:
    found = [name for name in ENGINES if shutil.which(name, path=environment.get("PATH")) is not None]
    served = [name for name in found if name != "python3"]
    beside = [name for name in BESIDE if (Path(sys.executable).parent / name).exists()]
    if served:
        yield fine("engines", f"{', '.join(served)} found on PATH")
    elif beside:
        what = f"{', '.join(beside)} beside this Python, as `llmgw dev` uses it"
        yield fine("engines", f"{what}; elsewhere name it by path, as `executable`")
    else:
        yield doubt("engines", "neither vllm nor llama-server is on PATH", "install one, or name `executable` by path")


CHECKS: tuple[Callable[[Mapping[str, str]], Iterator[Checked]], ...] = (
    _disks,
    _ports,
    _handles,
    _token_file,
    _engines,
)
