"""The worker's settings from flags and environment. Every problem is named at once, with what to write instead.

Reads the token file once, to judge it; connects to nothing.
"""

import argparse
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from activities.settings import peer_context, read_bearer
from llmgw.misfit import plain_words
from workers.settings import WorkerSettings, lacking
from workflows.client import Connection


class SettingsError(Exception):
    """All problems of the settings, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: its flag, its variable, its metavar, a line of help."""

    field: str
    variable: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return _flag(self.field)


OPTIONS = (
    Option("fleet", "LLMGW_FLEET", "NAME", "the fleet to work for; its workflow is fleet-NAME"),
    Option(
        "installation",
        "LLMGW_INSTALLATION",
        "ID",
        "id of your installation: made once, kept by you, the same on every control host",
    ),
    Option("state_dir", "LLMGW_STATE_DIR", "DIR", "where an installation id is made and kept when none is given"),
    Option("token_file", "LLMGW_TOKEN_FILE", "FILE", "bearer token for agents and routers, on its first line"),
    Option("peer_ca", "LLMGW_PEER_CA", "FILE", "authority of agents' and routers' certificates; default: the system's"),
    Option("peer_cert", "LLMGW_PEER_CERT", "FILE", "certificate to show agents and routers, with --peer-key"),
    Option("peer_key", "LLMGW_PEER_KEY", "FILE", "key of that certificate"),
    Option("metrics_listen", "LLMGW_METRICS_LISTEN", "HOST:PORT", "where the page and the metrics are, or off"),
    Option("page_token_file", "LLMGW_PAGE_TOKEN_FILE", "FILE", "tokens to look at the page, one on a line"),
    Option("identity", "LLMGW_IDENTITY", "NAME", "this worker's name in Temporal; default PID@HOST"),
    Option("deployment", "LLMGW_DEPLOYMENT", "NAME", "worker deployment, with --build-id: Temporal routes by version"),
    Option("build_id", "LLMGW_BUILD_ID", "ID", "build id of this worker, with --deployment"),
    Option("max_history", "LLMGW_MAX_HISTORY", "EVENTS", "continue as new after so many events, 100 to 40000"),
)

CONNECTION = {
    "--profile": ("profile", "NAME", "Temporal client profile [TEMPORAL_PROFILE]"),
    "--address": ("address", "HOST:PORT", "Temporal's address [TEMPORAL_ADDRESS]"),
    "--namespace": ("namespace", "NAME", "Temporal namespace [TEMPORAL_NAMESPACE]"),
    "--api-key": ("api_key", "KEY", "Temporal API key; better given as [TEMPORAL_API_KEY]"),
    "--tls-ca": ("tls_ca_file", "FILE", "certificate of the authority that Temporal's is signed by"),
    "--tls-cert": ("tls_cert_file", "FILE", "client certificate, with --tls-key"),
    "--tls-key": ("tls_key_file", "FILE", "key of the client certificate"),
}
"""Flags that override Temporal's own client profile, as `llmgw` has them too."""


def read(argv: Sequence[str], environ: Mapping[str, str]) -> WorkerSettings:
    """Flags before environment before defaults. Raises `SettingsError`; `--help` prints and exits."""
    given = vars(_parser().parse_args(argv))
    sources: dict[str, str] = {}
    values: dict[str, Any] = {"fresh": given["fresh"], "ensure": given["ensure"], "connection": _connection(given)}
    for option in OPTIONS:
        text = given[option.field]
        source, text = (option.flag, text) if text is not None else (option.variable, environ.get(option.variable))
        if text is not None:
            sources[option.field] = source
            values[option.field] = None if option.field == "metrics_listen" and text == "off" else text
    problems = [*(f"{sources[field]}: {what}" for field, what in _checked(values)), *lacking(values)]
    try:
        settings = WorkerSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError([*problems, *_sentences(error, sources)]) from None
    if problems:
        raise SettingsError(problems)
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw worker",
        allow_abbrev=False,
        description="A control worker: decides for one fleet and tells its agents and routers. Run as many as you "
        "like, on any hosts: Temporal gives the fleet one owner, and another worker takes over within seconds.",
        epilog="Every flag of the first group may be given as the variable in brackets. Temporal's address and "
        "credentials come from its own client profile (TEMPORAL_* variables, temporal.toml). Exit codes: 0 stopped by "
        "SIGTERM or SIGINT, 1 ended by itself (it says why), 2 bad settings, 3 Temporal not reached.",
    )
    for option in OPTIONS:
        default = WorkerSettings.model_fields[option.field].default
        shown = "" if default is None else f"; default {default}"
        text = f"{option.help}{shown} [{option.variable}]"
        parser.add_argument(option.flag, dest=option.field, metavar=option.metavar, help=text)
    parser.add_argument("--fresh", action="store_true", help="start anew a fleet that was ended")
    parser.add_argument("--no-ensure", dest="ensure", action="store_false", help="do not start the fleet's workflow")
    temporal = parser.add_argument_group("Temporal, instead of its client profile")
    for flag, (field, metavar, text) in CONNECTION.items():
        temporal.add_argument(flag, dest=field, metavar=metavar, help=text)
    return parser


def _connection(given: Mapping[str, Any]) -> Connection:
    fields: dict[str, Any] = {field: given[field] for field, _, _ in CONNECTION.values()}
    files = {field: Path(text) for field, text in fields.items() if field.endswith("_file") and text is not None}
    return Connection(**{**fields, **files})


def _checked(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(field, problem) of what only shows when it is used."""
    found: list[tuple[str, str]] = []
    if (listen := values.get("metrics_listen")) is not None and not _is_listen(listen):
        found.append(("metrics_listen", f"{listen!r} is not HOST:PORT, such as 127.0.0.1:9464, nor off"))
    found += _peer_problems(values)
    for field in ("token_file", "page_token_file"):
        if (file := values.get(field)) is None:
            continue
        try:
            read_bearer(Path(file))
        except OSError as error:
            found.append((field, f"cannot read {file}: {error.strerror}"))
        except ValueError as error:
            found.append((field, str(error)))
    return found


def _peer_problems(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    files = {field: Path(text) for field in ("peer_ca", "peer_cert", "peer_key") if (text := values.get(field))}
    unreadable = [(field, f"cannot read {path}") for field, path in files.items() if not os.access(path, os.R_OK)]
    if unreadable or ("peer_cert" in files) != ("peer_key" in files):
        return unreadable
    try:
        peer_context(files.get("peer_ca"), files.get("peer_cert"), files.get("peer_key"))
    except (OSError, ssl.SSLError) as error:
        return [(next(iter(files)), f"these files cannot be used: {error}")]
    return []


def _is_listen(text: str) -> bool:
    matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+):(\d{1,5})", text)
    return matched is not None and int(matched[2]) <= 65535


def _sentences(error: ValidationError, sources: Mapping[str, str]) -> list[str]:
    """Problems of single fields; what is lacking in several together is told by `lacking`."""
    return [
        f"{sources[field]}: {_what(detail)}"
        for detail in error.errors(include_url=False)
        if detail["loc"] and (field := str(detail["loc"][0])) in sources
    ]


def _what(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch":
        return f"{detail['input']!r} is no name: use 1 to 63 letters, digits, dots, dashes and underscores"
    return f"{detail['input']!r}: {plain_words(detail['msg'])}"


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"
