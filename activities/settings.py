"""What the activities need to know of their process: how to speak to agents and routers. Never enters a history."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outward:
    """How calls leave this process."""

    bearer: str | None = None
    """Token for agents and routers."""
    call_limit_s: float = 2.5
    """One HTTP call; under the lane's own limit of 3 s."""
    tls: ssl.SSLContext | None = None

    def headers(self) -> dict[str, str]:
        return {} if self.bearer is None else {"authorization": f"Bearer {self.bearer}"}


def peer_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """How this side meets agents and routers over HTTPS: whose certificates it takes, and its own for those who ask.

    None: the system's authorities, no certificate. Raises OSError, ssl.SSLError, and ValueError for half a pair.
    """
    if ca is None and cert is None and key is None:
        return None
    if (cert is None) != (key is None):
        raise ValueError("a certificate and its key go together")
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    if cert is not None and key is not None:
        context.load_cert_chain(cert, key)
    return context


def read_bearer(path: Path | None) -> str | None:
    """The first line that holds a token; ValueError when the file holds none."""
    if path is None:
        return None
    for line in path.read_text().splitlines():
        token = line.strip()
        if token and not token.startswith("#"):
            return token
    raise ValueError(f"{path}: no token in it; put one bearer token on the first line")
