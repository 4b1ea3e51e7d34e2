"""The few things that a command asks an agent itself: which node it is, and a replica's output."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.failures import REFUSED, UNREACHABLE, USAGE, CommandError
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    import httpx

STATE_PATH = "/v1/state"
RELEASE_PATH = "/v1/release"
RESTORE_PATH = "/v1/restore"
MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an agent says it is. `owner`: `INSTALLATION/FLEET`, None before anybody commanded it."""

    node: str
    owner: str | None


def identity_at(session: Session, url: str) -> Identity:
    """Who the agent at `url` says it is. `CommandError` when none says so."""
    address = f"{url.rstrip('/')}{STATE_PATH}"
    with _asked(session, "GET", address) as answer:
        report = next((line for line in answer.iter_lines() if line.strip()), "")
    try:
        said = json.loads(report)
        owner = said.get("owner")
        return Identity(str(said["node"]), owner and f"{owner['installation']}/{owner['fleet']}")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(UNREACHABLE, f"what answers at {address} is no agent: name the agent's own URL") from None


def node_at(session: Session, url: str) -> str:
    """The id that the agent at `url` says it has. `CommandError` when none says so."""
    return identity_at(session, url).node


def release_at(session: Session, url: str, owner: str) -> None:
    """Have the agent at `url` forget `owner`, given as `INSTALLATION/FLEET`. `CommandError` when it is another's."""
    installation, _, fleet = owner.partition("/")
    body = {"owner": {"installation": installation, "fleet": fleet}}
    with _asked(session, "POST", f"{url.rstrip('/')}{RELEASE_PATH}", body=body):
        pass


def restore_at(session: Session, url: str, device: str) -> None:
    """Have the agent at `url` take a quarantined device into use again. `CommandError` when it does not."""
    with _asked(session, "POST", f"{url.rstrip('/')}{RESTORE_PATH}", body={"device": device}):
        pass


def copy_logs(session: Session, url: str, *, lines: int, follow: bool) -> None:
    """Copy what the agent answers to standard output; with `follow` as long as it goes on."""
    asked = {"lines": str(lines), **({"follow": "1"} if follow else {})}
    with _asked(session, "GET", url, asked) as answer:
        for part in answer.iter_text():
            sys.stdout.write(part)
            sys.stdout.flush()


@contextmanager
def _asked(
    session: Session, method: str, url: str, parameters: Mapping[str, str] | None = None, body: object = None
) -> Iterator["httpx.Response"]:
    """A streamed answer of success. `CommandError` for every other, and for none."""
    import httpx  # late, as above

    wait = httpx.Timeout(10.0, read=None if parameters and "follow" in parameters else 10.0)
    try:
        with (
            session.outside.agents(headers(session.target.token_file)) as client,
            client.stream(method, url, params=parameters, json=body, timeout=wait) as answer,
        ):
            if not answer.is_success:
                raise _refusal(url, answer.status_code, answer.read().decode(errors="replace"))
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(UNREACHABLE, f"no agent answers at {url}: {why_not(error)}") from error


def why_not(error: Exception) -> str:
    """Why nothing answered, in words: never a number of the system, or the name of a class."""
    text = " ".join(str(error).split())
    for part, said in _WHY_NOT.items():
        if part in f"{type(error).__name__} {text}".casefold():
            return said
    return re.sub(r"^\[[^\]]*\] *", "", text) or "the connection broke off"


_WHY_NOT: Mapping[str, str] = {
    "refused": "nothing listens there. Is it running, and is that its port?",
    "all connection attempts failed": "nothing listens there. Is it running, and is that its port?",
    "name or service not known": "there is no machine of that name",
    "nodename nor servname": "there is no machine of that name",
    "no address associated": "there is no machine of that name",
    "temporary failure in name resolution": "its name cannot be looked up",
    "no route to host": "there is no way to that machine",
    "network is unreachable": "there is no way to that machine",
    "certificate": "its certificate is not accepted",
    "wrong_version_number": "it does not speak HTTPS there: try http://",
    "timeout": "no answer in time. Is its port open to this machine?",
    "timed out": "no answer in time. Is its port open to this machine?",
    "disconnected without": "it closed the connection without an answer",
    "unsupportedprotocol": "it is no URL: write http:// or https:// and the host",
    "invalidurl": "it is no URL: write http:// or https:// and the host",
}
"""By what the error or its class says, in small letters; the first that is found counts."""


def _refusal(url: str, status: int, body: str) -> CommandError:
    if status == 401 or (status == 403 and "owner" not in body):
        return CommandError(
            REFUSED, f"the agent at {url} wants a token it knows: give --token-file or LLMGW_TOKEN_FILE"
        )
    try:
        text = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        text = body.strip()[:300] or "without a word"
    return CommandError(REFUSED, f"the agent answers {status}: {text}")


def headers(token_file: Path | None) -> dict[str, str]:
    """What lets us in: the token on the file's first line that holds one."""
    if token_file is None:
        return {}
    try:
        lines = [line.strip() for line in token_file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CommandError(USAGE, f"--token-file: cannot read {token_file}: {reason}") from error
    token = next((line for line in lines if line and not line.startswith("#")), None)
    if token is None:
        raise CommandError(USAGE, f"--token-file: {token_file} holds no token: put one on its first line")
    return {"authorization": f"Bearer {token}"}
