"""The agent's own certificate, and which clients' certificates it takes.

A certificate that is replaced on the disk is in force for the next connection, without a restart; one that cannot be
loaded leaves the last one in force.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tls:
    """Files in PEM form. `client_ca`: only clients with a certificate of this authority get as far as the door."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def server_context(tls: Tls) -> ssl.SSLContext:
    """A context that serves as told. Raises OSError or ssl.SSLError for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert, tls.key)
    if tls.client_ca is not None:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Rotation:
    """Loads the certificate again when its files have changed."""

    def __init__(self, tls: Tls, context: ssl.SSLContext) -> None:
        self._tls = tls
        self._context = context
        self._seen = self._stamp()

    def check(self) -> str:
        """What is wrong with the new files; empty when all is well. Blocking."""
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                server_context(self._tls)  # judged apart first: loading a bad pair would leave half of it behind
                self._context.load_cert_chain(self._tls.cert, self._tls.key)
                self._seen = stamp
        except (OSError, ssl.SSLError) as error:
            return f"{self._tls.cert}: {error}"
        return ""

    def _stamp(self) -> tuple[int, int]:
        return self._tls.cert.stat().st_mtime_ns, self._tls.key.stat().st_mtime_ns
