"""The few things that a command asks an agent itself: which node it is, and a replica's output."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.failures import REFUSED, UNREACHABLE, USAGE, CommandError
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    import httpx

STATE_PATH = "/v1/state"
MOST_LINES = 10_000


def node_at(session: Session, url: str) -> str:
    """The id that the agent at `url` says it has. `CommandError` when none says so."""
    address = f"{url.rstrip('/')}{STATE_PATH}"
    with _asked(session, address) as answer:
        report = next((line for line in answer.iter_lines() if line.strip()), "")
    try:
        return str(json.loads(report)["node"])
    except (ValueError, KeyError, TypeError):
        raise CommandError(UNREACHABLE, f"what answers at {address} is no agent: name the agent's own URL") from None


def copy_logs(session: Session, url: str, *, lines: int, follow: bool) -> None:
    """Copy what the agent answers to standard output; with `follow` as long as it goes on."""
    with _asked(session, url, lines=str(lines), **({"follow": "1"} if follow else {})) as answer:
        for part in answer.iter_text():
            sys.stdout.write(part)
            sys.stdout.flush()


@contextmanager
def _asked(session: Session, url: str, **parameters: str) -> Iterator["httpx.Response"]:
    """A streamed answer of 200. `CommandError` for every other, and for none."""
    import httpx  # late, as above

    wait = httpx.Timeout(10.0, read=None if "follow" in parameters else 10.0)
    try:
        with (
            session.outside.agents(headers(session.target.token_file)) as client,
            client.stream("GET", url, params=parameters, timeout=wait) as answer,
        ):
            if answer.status_code != 200:
                raise _refusal(url, answer.status_code, answer.read().decode(errors="replace"))
            yield answer
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(UNREACHABLE, f"no agent answers at {url} ({error or type(error).__name__})") from error


def _refusal(url: str, status: int, body: str) -> CommandError:
    if status in (401, 403):
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
