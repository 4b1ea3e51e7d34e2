"""Bounded sentences for people: cut texts, cut lists, unknown names with the nearest known one.

Every text made here survives UTF-8 and stays within its limit, because it is carried through histories.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from llmgw.wire import MAX_ERROR_CHARS

_NAMES_SHOWN = 8


def cut(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """`text` with at most `limit` characters, on one line; what UTF-8 cannot carry becomes `?`."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def brief(text: str, limit: int) -> str:
    """The first clause of `text`, and of a long one as many whole words as fit."""
    clause = cut(text, 4 * limit).partition(";")[0]
    return clause if len(clause) <= limit else f"{clause[:limit].rpartition(' ')[0] or clause[:limit]} …"


def cut_list(texts: Sequence[str], most: int) -> tuple[str, ...]:
    """The first `most` of `texts`, each cut, then "and N more"."""
    shown = tuple(cut(text) for text in texts[:most])
    return shown if len(texts) <= most else (*shown, f"and {len(texts) - most} more")


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """A sentence saying that there is no `what` called `given`, with the nearest known names."""
    names = sorted(known)
    sentence = f"there is no {what} called {cut(given, 80)!r}"
    if not names:
        return f"{sentence}: none is known yet"
    if close := get_close_matches(given[:80], names, n=3, cutoff=0.6):
        return f"{sentence}: did you mean {one_of(close)}?"
    return f"{sentence}: known are {names_shown(names)}"


def one_of(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def names_shown(names: Sequence[str]) -> str:
    """`a, b, c and 7 more`."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def counted(count: int, noun: str) -> str:
    """`1 replica`, `3 replicas`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def are(count: int, noun: str) -> str:
    """`1 replica is`, `3 replicas are`."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


def lasting(seconds: float) -> str:
    """A duration for people: `8 s`, `3 min`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60} min" if rest >= 60 else f"{hours} h"


def json_kind(value: object) -> str:
    """JSON's word for the type of `value`, which is not quoted: it could be a secret."""
    return _JSON_KINDS.get(type(value), "something else")


_JSON_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}
