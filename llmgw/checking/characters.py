"""A rule about characters that no text of a catalog can have, wherever it stands."""

from collections.abc import Iterator

from llmgw.checking.raw import every_text
from llmgw.checking.sent import Sent
from llmgw.problems import Finding


def characters(sent: Sent) -> Iterator[Finding]:
    """NUL, which ends a text for every program, and half characters, which cannot be written as UTF-8."""
    for at, text in every_text(sent.raw):
        if "\x00" in text:
            yield Finding(at, "it holds a NUL character, which ends a text for every program", "take it out")
        if any("\ud800" <= char <= "\udfff" for char in text):
            yield Finding(at, "it holds half a character (a lone surrogate)", "write the whole character")
