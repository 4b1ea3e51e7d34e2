"""The few things that the command asks an agent itself: which node it is, and a replica's output."""

import json
import sys
from pathlib import Path

from cli.reach import OK, REFUSED, UNREACHABLE, fail, leave

LIMIT_S = 10.0


def _headers(token_file: Path | None) -> dict[str, str]:
    return {} if token_file is None else {"authorization": f"Bearer {token_file.read_text().split()[0]}"}


def node_at(url: str, token_file: Path | None) -> str:
    """The id of the node whose agent answers at `url`; the process ends with one sentence when none does."""
    import httpx  # late: quick help

    address = f"{url.rstrip('/')}/v1/state"
    try:
        with httpx.stream("GET", address, headers=_headers(token_file), timeout=LIMIT_S, trust_env=False) as answer:
            if answer.status_code != 200:
                fail(REFUSED, f"{address} answers {answer.status_code}: {answer.read().decode()[:300]}")
            first = next(line for line in answer.iter_lines() if line.strip())
            return str(json.loads(first)["node"])
    except (httpx.HTTPError, ValueError, KeyError, StopIteration) as error:
        fail(UNREACHABLE, f"no agent tells its node at {address} ({error}): give --id, or start the agent first")


def print_logs(url: str, lines: int, token_file: Path | None, *, follow: bool) -> None:
    """Copy the agent's answer to standard output; with `follow` until Ctrl-C."""
    import httpx  # late: quick help

    headers = _headers(token_file)
    params = {"lines": str(lines), **({"follow": "1"} if follow else {})}
    timeout = httpx.Timeout(10.0, read=None if follow else 10.0)
    try:
        with httpx.stream("GET", url, params=params, headers=headers, timeout=timeout, trust_env=False) as answer:
            if answer.status_code != 200:
                fail(REFUSED, f"{url} answers {answer.status_code}: {answer.read().decode()[:300]}")
            for part in answer.iter_text():
                sys.stdout.write(part)
                sys.stdout.flush()
    except httpx.HTTPError as error:
        fail(UNREACHABLE, f"the agent at {url} is not reached: {error}")
    except KeyboardInterrupt:
        leave(OK)
