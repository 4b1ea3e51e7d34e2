"""The router's settings, from flags and environment. Every problem is named in one error; nothing is half-applied."""

import argparse
import ipaddress
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from router.auth import read_keys

MIB = 1024 * 1024
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SettingsError(Exception):
    """All problems of the settings, one a line."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the router cannot start:\n" + "\n".join(f"  - {problem}" for problem in problems))


@dataclass(frozen=True, slots=True)
class Listen:
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Settings:
    """`token_file` None: the control API is open (only on loopback). `api_keys_file` None: clients need no key."""

    listen: Listen
    state_dir: Path
    token_file: Path | None
    api_keys_file: Path | None
    router_id: str
    connect_timeout_s: float
    drain_limit_s: float
    max_body_bytes: int
    access_log: bool
    hold_limit_s: float = 60.0
    """How long a request for a model that sleeps or starts is held; 0: it is answered at once."""
    hold_requests: int = 100
    """Requests held for one model."""
    body_limit_s: float = 300.0
    """How long a request's body may take to arrive."""
    processes: int = 1
    """That serve clients behind one port."""


@dataclass(frozen=True, slots=True)
class _Option(Generic[T_co]):
    """`parse` raises ValueError with how to mend the text."""

    flag: str
    variable: str
    default: str
    parse: Callable[[str], T_co]
    help: str


def _listen(text: str) -> Listen:
    matched = re.fullmatch(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})", text)
    if matched is None or int(matched["port"]) > 65535:
        raise ValueError("write HOST:PORT, for example 127.0.0.1:8080 or [::1]:8080")
    return Listen(matched["six"] or matched["host"], int(matched["port"]))


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _keys_path(text: str) -> Path | None:
    """Checked by reading it once; the keys themselves are not part of the settings, they can be read again."""
    if not text:
        return None
    path = _path(text)
    try:
        read_keys(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{reason}; give a readable UTF-8 file with one key on a line") from error
    return path


def _router_id(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise ValueError("use 1 to 64 letters, digits, dots, dashes and underscores")
    return text


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        mend = f"write a number from {low:g} to {high:g}"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(mend) from None
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(mend)
        return value

    return parse


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not low <= int(text[:12]) <= high:
            raise ValueError(f"write a whole number from {low} to {high}")
        return int(text)

    return parse


def _switch(text: str) -> bool:
    match text.lower():
        case "on" | "true" | "yes" | "1":
            return True
        case "off" | "false" | "no" | "0":
            return False
        case _:
            raise ValueError("write on or off")


_LISTEN = _Option("listen", "LLMGW_ROUTER_LISTEN", "127.0.0.1:8080", _listen, "HOST:PORT of clients and control plane")
_STATE = _Option("state-dir", "LLMGW_ROUTER_STATE_DIR", ".llmgw/router", _path, "where this router keeps its tables")
_TOKENS = _Option("token-file", "LLMGW_TOKEN_FILE", "", _keys_path, "bearer tokens of the control API, one on a line")
_KEYS = _Option("api-keys-file", "LLMGW_ROUTER_API_KEYS_FILE", "", _keys_path, "API keys of clients, one on a line")
_ID = _Option("router-id", "LLMGW_ROUTER_ID", "", _router_id, "this router's name in reports; else the host's name")
_CONNECT = _Option(
    "connect-timeout-s", "LLMGW_ROUTER_CONNECT_TIMEOUT_S", "2", _number(0.01, 60), "limit for connecting to an endpoint"
)
_DRAIN = _Option(
    "drain-limit-s", "LLMGW_ROUTER_DRAIN_LIMIT_S", "30", _number(0, 86400), "limit for open requests when it is stopped"
)
_BODY = _Option("max-body-mib", "LLMGW_ROUTER_MAX_BODY_MIB", "64", _number(0.001, 4096), "largest request body")
_BODY_LIMIT = _Option(
    "body-limit-s",
    "LLMGW_ROUTER_BODY_LIMIT_S",
    "300",
    _number(0.01, 86400),
    "how long a request body may take to arrive",
)
_LOG = _Option("access-log", "LLMGW_ROUTER_ACCESS_LOG", "on", _switch, "on or off: a JSON line per request, no prompts")
_HOLD = _Option(
    "hold-limit-s",
    "LLMGW_ROUTER_HOLD_LIMIT_S",
    "60",
    _number(0, 86400),
    "how long requests wait for a model that sleeps or starts, before 503 with Retry-After; 0 answers at once",
)
_HELD = _Option(
    "hold-requests", "LLMGW_ROUTER_HOLD_REQUESTS", "100", _count(1, 1_000_000), "how many requests wait for one model"
)
_PROCESSES = _Option(
    "processes", "LLMGW_ROUTER_PROCESSES", "1", _count(1, 64), "processes that serve clients, with one table and count"
)
_OPTIONS: tuple[_Option[object], ...] = (
    *(_LISTEN, _STATE, _TOKENS, _KEYS, _ID),
    *(_CONNECT, _DRAIN, _BODY, _BODY_LIMIT, _LOG, _HOLD, _HELD, _PROCESSES),
)


def read(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from flags, else the environment, else defaults. Raises SettingsError; SystemExit after `--help`."""
    given, unknown = _parser().parse_known_args(argv)
    source = _Source(vars(given), environment)
    settings = Settings(
        listen=source.value(_LISTEN),
        state_dir=source.value(_STATE),
        token_file=source.value(_TOKENS),
        api_keys_file=source.value(_KEYS),
        router_id=source.value(_ID) or socket.gethostname(),
        connect_timeout_s=source.value(_CONNECT),
        drain_limit_s=source.value(_DRAIN),
        max_body_bytes=int(source.value(_BODY) * MIB),
        access_log=source.value(_LOG),
        body_limit_s=source.value(_BODY_LIMIT),
        hold_limit_s=source.value(_HOLD),
        hold_requests=source.value(_HELD),
        processes=source.value(_PROCESSES),
    )
    problems = [f"{argument}: unknown argument; see --help" for argument in unknown] + source.problems
    if not settings.listen.loopback and not source.text(_TOKENS):
        problems.append(f"--listen {settings.listen.host}: is not loopback, so the control API needs --token-file")
    if problems:
        raise SettingsError(problems)
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw router",
        allow_abbrev=False,
        description="The OpenAI-compatible router. It serves the tables that control planes publish, and keeps serving "
        "the last ones while they are away. Without --token-file the control API is open, on loopback only.",
    )
    for option in _OPTIONS:
        default = f", default {option.default}" if option.default else ""
        parser.add_argument(f"--{option.flag}", metavar="VALUE", help=f"{option.help} ({option.variable}{default})")
    return parser


class _Source:
    """Texts from flags, environment and defaults; collects what cannot be parsed."""

    def __init__(self, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> None:
        self._flags = flags
        self._environment = environment
        self.problems: list[str] = []

    def text(self, option: _Option[object]) -> str | None:
        given = self._flags[option.flag.replace("-", "_")]
        return self._environment.get(option.variable) if given is None else given

    def value(self, option: _Option[T]) -> T:
        """The parsed value; the default's, and a problem noted, when the text is bad."""
        text = self.text(option)
        if not text:
            return option.parse(option.default)
        try:
            return option.parse(text)
        except ValueError as error:
            self.problems.append(f"--{option.flag} (or {option.variable}) {text!r}: {error}")
            return option.parse(option.default)
