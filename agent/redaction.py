"""Secrets' values taken out of text that leaves the node: as they are, and in the forms in which programs show them.

Engines print their arguments and environment; what they print ends in logs and reports. Values shorter than six
characters are left: taking those out would tear other words apart, and they are no secrets.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterable
from urllib.parse import quote, quote_plus

SHORTEST = 6
MARK = "***"
_LONGEST_LINE = 64 * 1024


def forms_of(value: str) -> set[str]:
    """The spellings under which a value may be shown: plain, escaped as in JSON, Python or a shell, quoted for URLs, in
    base64 (at each of its three offsets, but for the characters that depend on the neighbours)."""
    raw = value.encode()
    found = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    found |= {quote(value), quote(value, safe=""), quote_plus(value), value.replace("'", "'\\''")}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            text = encode(b"\0" * offset + raw).decode().rstrip("=")
            first = (offset * 8 + 5) // 6
            last = len(text) - (1 if (offset + len(raw)) % 3 else 0)
            found.add(text[first:last])
    # Programs that print line by line cut a value of several lines apart.
    found |= {line for line in value.splitlines() if len(line) >= SHORTEST}
    return {form for form in found if len(form) >= SHORTEST}


class Redactor:
    """Knows every value it was ever given: what an engine printed before a rotation stays secret."""

    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, values: Iterable[str]) -> None:
        fresh = {form for value in values if len(value) >= SHORTEST for form in forms_of(value)} - self._forms
        if fresh:
            self._forms |= fresh
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def clean(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MARK, text)

    def clean_bytes(self, raw: bytes) -> bytes:
        """As `clean`; bytes that are no UTF-8 stay as they are."""
        return self.clean(raw.decode(errors="surrogateescape")).encode(errors="surrogateescape")

    async def clean_stream(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """As `clean`, by whole lines, so that no value hides on the border of two chunks."""
        rest = b""
        async for chunk in chunks:
            head, newline, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > _LONGEST_LINE:
                head, newline, rest = head + newline + rest, b"", b""
            if head or newline:
                yield self.clean_bytes(head + newline)
        if rest:
            yield self.clean_bytes(rest)
