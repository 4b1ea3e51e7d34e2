"""The agent's settings: flags first, then the environment, then the defaults. Read once, at start.

Every problem is told at once, each with what to write instead; then nothing has been done.
"""

import argparse
import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from agent.auth import split_tokens
from agent.declared import Declared
from agent.options import OPTIONS, Option
from agent.tls import Tls, server_context
from llmgw.ids import NodeId

__all__ = ["OPTIONS", "Settings", "SettingsError", "is_loopback", "read_settings"]

TOKENS_VARIABLE = "LLMGW_TOKENS"
"""Bearer tokens, where no file gives them; never a flag, which every process of the machine could read."""

_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound


class Settings(BaseModel):
    """What an agent runs with. Sizes in MiB."""

    model_config = ConfigDict(frozen=True)

    node: NodeId
    listen_host: str
    listen_port: int
    url: str
    """Under which the plane reaches this agent."""
    state_dir: Path
    token_file: Path | None
    devices: tuple[Declared, ...] | None
    """None: ask the machine."""
    device_memory: Mapping[str, int]
    """Device id or kind -> MiB, where the machine's tools do not know or err."""
    first_port: int
    last_port: int
    engine_host: str
    """The address engines are told to bind."""
    allow: tuple[str, ...]
    """Executables that may be started, by name or path; empty = all."""
    allow_images: tuple[str, ...]
    """Images that may be run, as patterns; empty = all."""
    container_tool: str | None
    """Name or path; None: docker or podman, as found; `none`: no containers."""
    container_user: str
    """As whom containers run: `image`, `agent` or UID[:GID]."""
    secrets_dir: Path | None
    weights_root: Path | None
    machine_id: str | None
    log_limit_mib: int
    tokens: tuple[str, ...] = Field(default=(), repr=False)
    """Bearer tokens from the environment; a token file wins."""
    tls: Tls | None = None
    max_body_mib: int = 8
    weights_limit_percent: int | None = None
    """Above this use of the root's disk, weights that pulls brought go by last use."""
    requests_per_s: int = 100
    """Of one address."""

    @property
    def reach_host(self) -> str:
        """The host that routers reach engines at."""
        if self.engine_host in _WILDCARDS:
            return urlsplit(self.url).hostname or self.engine_host
        return self.engine_host

    @property
    def probe_hosts(self) -> tuple[str, ...]:
        """Where an engine may answer: one told to bind every address may bind those of one family alone."""
        return ("127.0.0.1", "::1") if self.engine_host in _WILDCARDS else (self.engine_host,)


class SettingsError(Exception):
    """Everything that is wrong with the settings, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def read_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings. Raises SettingsError with all problems; `--help` prints and exits."""
    flags = vars(_parser().parse_args(argv))
    values: dict[str, Any] = {}
    problems: list[str] = []
    for option in OPTIONS:
        text, source = _text_of(option, flags, environ)
        try:
            values[option.field] = option.read(text) if text is not None else None
        except ValueError as error:
            problems.append(f"{source}: {error}")
            values[option.field] = None
    values["tokens"] = split_tokens(environ.get(TOKENS_VARIABLE, ""))
    problems += _together(values, {problem.split(":")[0] for problem in problems})
    if problems:
        raise SettingsError(problems)
    return _assemble(values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw agent",
        description="The node's half of llmgw: starts, watches and stops engines on this machine.",
        epilog="Every flag may be given as the variable in brackets. Engines outlive the agent: a new one takes them "
        "over from --state-dir.",
    )
    for option in OPTIONS:
        default = f"; default {option.default}" if option.default else ""
        parser.add_argument(option.flag, metavar=option.metavar, help=f"{option.help}{default} [{option.variable}]")
    return parser


def _text_of(option: Option, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str | None, str]:
    """(text, where it came from)."""
    if (given := flags[option.field]) is not None:
        return given, option.flag
    if option.variable in environ:
        return environ[option.variable], option.variable
    return option.default, option.flag


def _together(values: Mapping[str, Any], told: set[str]) -> list[str]:
    """Problems that lie in several settings at once, or in their absence."""
    problems = [
        f"{flag}: missing; {why}"
        for flag, why in (
            ("--node-id", "give the id by which the catalog knows this node"),
            ("--state-dir", "give a folder that outlives restarts, such as /var/lib/llmgw"),
        )
        if values[flag.removeprefix("--").replace("-", "_")] is None and not _was_told(flag, told)
    ]
    problems += _tls_problems(values, told)
    if values["weights_limit_percent"] is not None and values["weights_root"] is None:
        problems.append("--weights-root: missing; --weights-limit-percent is about the disk it lies on")
    listen = values["listen"]
    guarded = values["token_file"] or values["tokens"] or values["tls_client_ca"]
    if listen and not guarded and not _was_told("--token-file", told) and not is_loopback(listen[0]):
        problems.append(
            f"--token-file: missing; without tokens (or --tls-client-ca) the agent listens on loopback only, "
            f"not on {listen[0]}"
        )
    binds = values["engine_host"] or (listen[0] if listen else None)
    if binds in _WILDCARDS and values["url"] is None and listen and listen[0] in _WILDCARDS:
        problems.append("--url: missing; engines that bind every address need a name that routers reach them by")
    ports = values["port_range"]
    if listen and ports and ports[0] <= listen[1] <= ports[1]:
        problems.append(f"--port-range: {ports[0]}-{ports[1]} holds the agent's own port {listen[1]}; move one of them")
    return problems


def _tls_problems(values: Mapping[str, Any], told: set[str]) -> list[str]:
    cert, key, client_ca = (values[name] for name in ("tls_cert", "tls_key", "tls_client_ca"))
    flags = {"--tls-cert": cert, "--tls-key": key}
    if any((cert, key, client_ca)):
        missing = [flag for flag, value in flags.items() if value is None and not _was_told(flag, told)]
        if missing:
            return [f"{flag}: missing; HTTPS takes a certificate and its key" for flag in missing]
    if cert is None or key is None:
        return []
    try:
        server_context(Tls(cert, key, client_ca))
    except (OSError, ssl.SSLError) as error:
        return [f"--tls-cert: {cert}, {key} and {client_ca or 'no authority'} do not go together: {error}"]
    return []


def _was_told(flag: str, told: set[str]) -> bool:
    variable = next(option.variable for option in OPTIONS if option.flag == flag)
    return flag in told or variable in told


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _assemble(values: Mapping[str, Any]) -> Settings:
    host, port = values["listen"]
    tls = Tls(values["tls_cert"], values["tls_key"], values["tls_client_ca"]) if values["tls_cert"] else None
    return Settings(
        node=NodeId(values["node_id"]),
        listen_host=host,
        listen_port=port,
        url=values["url"] or f"{'https' if tls else 'http'}://{host}:{port}",
        state_dir=values["state_dir"],
        token_file=values["token_file"],
        devices=values["devices"],
        device_memory=values["device_memory"],
        first_port=values["port_range"][0],
        last_port=values["port_range"][1],
        engine_host=values["engine_host"] or host,
        allow=values["allow"],
        allow_images=values["allow_images"],
        container_tool=values["container_tool"],
        container_user=values["container_user"],
        secrets_dir=values["secrets_dir"],
        weights_root=values["weights_root"],
        machine_id=values["machine_id"],
        log_limit_mib=values["log_limit_mib"],
        tokens=values["tokens"],
        tls=tls,
        max_body_mib=values["max_body_mib"],
        requests_per_s=values["requests_per_s"],
        weights_limit_percent=values["weights_limit_percent"],
    )
