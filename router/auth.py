"""Bearer keys of the control API and of clients. Never logs a key, and never compares one character by character."""

import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path

_SCHEME = "bearer "


class Keys:
    """A set of accepted keys; several, so that one can be replaced while the old one still works.

    Keys are looked up by a digest keyed per process, so the time of a look-up tells nothing about any key.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._salt = secrets.token_bytes(16)
        self._digests = frozenset(self._digest(key) for key in keys)

    def admit(self, authorization: str | None) -> bool:
        """Whether an `Authorization` header value carries one of the keys as a bearer token."""
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        return self._digest(authorization[len(_SCHEME) :].strip()) in self._digests

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode(errors="surrogateescape"), key=self._salt, digest_size=16).digest()


def read_keys(path: Path) -> Keys:
    """Keys from a file, one on a line; empty lines and lines that start with `#` are skipped.

    Raises OSError when it cannot be read and ValueError when it holds no key: an empty file must never mean "open".
    """
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError("holds no key")
    return Keys(keys)


class Gate:
    """Who may pass: those who have a key of a file, or everybody where no file is set."""

    def __init__(self, path: Path | None) -> None:
        """Raises as `read_keys`."""
        self._path = path
        self._keys = None if path is None else read_keys(path)

    @property
    def open(self) -> bool:
        return self._path is None

    def admit(self, authorization: str | None) -> bool:
        return self._keys is None or self._keys.admit(authorization)

    def reload(self) -> None:
        """Read the file again; the keys stay as they were when it raises, as `read_keys` does."""
        if self._path is not None:
            self._keys = read_keys(self._path)
