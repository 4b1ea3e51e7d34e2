"""Rules about names: who claims which, which look alike, and which can never work all the way to a client."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from llmgw.catalog import MAX_FLEET_NAMES_CHARS, MAX_MODEL_NAMES_CHARS, MAX_NAME_CHARS
from llmgw.checking.raw import EACH, parts, text, texts
from llmgw.checking.sent import Sent
from llmgw.placeholders import OPENING
from llmgw.problems import Finding, Lines, Path, Severity, path_text, position_of, quoted


@dataclass(frozen=True, slots=True)
class Claim:
    """A public name that a model claims, as its own name or as an alias."""

    at: Path
    name: str
    owner: Path
    """Path of the model."""
    owner_name: str
    is_alias: bool

    def said(self, lines: Lines) -> str:
        """`alias of model "a" (models[0].aliases[1], line 7)`."""
        place = position_of(self.at, lines)
        line = f", line {place.line}" if place else ""
        role = "an alias of model" if self.is_alias else "the name of model"
        return f"{role} {quoted(self.owner_name)} ({path_text(self.at)}{line})"


def claims(raw: object) -> tuple[Claim, ...]:
    found: list[Claim] = []
    for owner, model in parts(raw, "models", EACH):
        name = text(model, "name")
        shown = name if name is not None else path_text(owner)
        if name is not None:
            found.append(Claim((*owner, "name"), name, owner, shown, is_alias=False))
        found += [
            Claim(at, alias, owner, shown, is_alias=True) for at, alias in texts(model, "aliases", EACH, at=owner)
        ]
    return tuple(found)


def public_names(sent: Sent) -> Iterator[Finding]:
    """Unusable names, names with two owners, names that look alike."""
    claimed, lines = claims(sent.raw), sent.lines
    for claim in claimed:
        if (reason := unusable(claim.name)) is not None:
            yield Finding(claim.at, f"the name {quoted(claim.name)} cannot be used: {reason}", "choose another name")
    yield from _too_many(claimed)
    yield from _claimed_twice(claimed, lines)
    yield from _look_alike(claimed, lines)


@lru_cache(maxsize=8192)
def unusable(name: str) -> str | None:
    """Why `name` cannot be a model's public name, or None. `/ : .`, capitals and non-ASCII letters are fine."""
    return next((reason for fails, reason in _NAME_RULES if fails(name)), None)


# NUL and half characters are refused in every text, by `llmgw.checking.characters`.
_INVISIBLE = {"Cc", "Cf", "Co", "Cn", "Zl", "Zp"}

_NAME_RULES = (
    (lambda name: not name, "it is empty"),
    (lambda name: len(name) > MAX_NAME_CHARS, f"it is longer than {MAX_NAME_CHARS} characters"),
    (lambda name: name != name.strip(), "it begins or ends with a blank"),
    (
        lambda name: any(char != "\0" and unicodedata.category(char) in _INVISIBLE for char in name),
        "it holds control or invisible characters",
    ),
    (
        lambda name: bool({"", ".", ".."} & set(name.replace("\\", "/").split("/"))),
        "its parts between slashes must not be empty, `.` or `..`",
    ),
    (lambda name: name.startswith("-"), "it would be read as an option"),
    (lambda name: OPENING in name, "it holds a placeholder"),
)


def _too_many(claimed: Iterable[Claim]) -> Iterator[Finding]:
    """Names that are too long taken together, model by model and for the fleet."""
    chars: defaultdict[tuple[Path, str], int] = defaultdict(int)
    for claim in claimed:
        chars[claim.owner, claim.owner_name] += len(claim.name)
    for (owner, name), size in chars.items():
        if size > MAX_MODEL_NAMES_CHARS:
            yield Finding(
                (*owner, "aliases"),
                f"the names of model {quoted(name)} have {size:,} characters together, "
                f"and {MAX_MODEL_NAMES_CHARS:,} are allowed",
                "give it fewer or shorter aliases",
            )
    if (size := sum(chars.values())) > MAX_FLEET_NAMES_CHARS:
        yield Finding(
            ("models",),
            f"the names of all models have {size:,} characters together, and {MAX_FLEET_NAMES_CHARS:,} are allowed",
            "use fewer or shorter aliases, or split the fleet",
        )


def _claimed_twice(claimed: Iterable[Claim], lines: Lines) -> Iterator[Finding]:
    for same in _groups((claim.name, claim) for claim in claimed):
        first = same[0]
        for claim in same[1:]:
            if claim.owner == first.owner:
                yield Finding(
                    claim.at,
                    f"{quoted(claim.name)} is already {first.said(lines)}",
                    "leave the alias out",
                    Severity.WARNING,
                )
                continue
            role = "alias" if claim.is_alias else "name"
            yield Finding(
                claim.at,
                f"the {role} {quoted(claim.name)} of model {quoted(claim.owner_name)} is also {first.said(lines)}",
                "a name belongs to one model: keep it in one of the two",
            )


def _look_alike(claimed: Iterable[Claim], lines: Lines) -> Iterator[Finding]:
    by_name = {claim.name: claim for claim in reversed(list(claimed))}
    first_of_each = [by_name[name] for name in sorted(by_name)]
    for alike in _groups((unicodedata.normalize("NFC", claim.name), claim) for claim in first_of_each):
        for claim in alike[1:]:
            yield Finding(
                claim.at,
                f"{quoted(claim.name)} looks the same as {alike[0].said(lines)} and is written with other characters",
                "write both the same way, or choose another name",
            )
    for alike in _groups((_folded(claim.name), claim) for claim in first_of_each):
        for claim in alike[1:]:
            if unicodedata.normalize("NFC", claim.name) != unicodedata.normalize("NFC", alike[0].name):
                yield Finding(
                    claim.at,
                    f"{quoted(claim.name)} differs only in case or width from {quoted(alike[0].name)}, "
                    f"{alike[0].said(lines)}",
                    "both work; clients may mix them up",
                    Severity.WARNING,
                )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _groups(pairs: Iterable[tuple[str, Claim]]) -> Iterator[list[Claim]]:
    """Claims under one key, where there are at least two."""
    by_key: defaultdict[str, list[Claim]] = defaultdict(list)
    for key, claim in pairs:
        by_key[key].append(claim)
    return (group for group in by_key.values() if len(group) > 1)


_UNIQUE = (
    # what is unique, within which parts, under which key
    ("pool", ("pools", EACH), "name"),
    ("node", ("nodes", EACH), "id"),
    ("router", ("routers", EACH), "id"),
)


def duplicate_ids(sent: Sent) -> Iterator[Finding]:
    """Pools, nodes and routers that are there twice; URLs that two of nodes and routers share."""
    for kind, pattern, key in _UNIQUE:
        yield from _repeated(kind, texts(sent.raw, *pattern, key))
    urls = texts(sent.raw, "nodes", EACH, "url"), texts(sent.raw, "routers", EACH, "url")
    yield from _repeated("URL", ((at, _address(url)) for at, url in chain(*urls)))


def duplicates_in_models(sent: Sent) -> Iterator[Finding]:
    """Profiles of a model, and ports of a profile, that are there twice."""
    for owner, model in parts(sent.raw, "models", EACH):
        yield from _repeated("profile", texts(model, "profiles", EACH, "name", at=owner))
        for at, profile in parts(model, "profiles", EACH, at=owner):
            yield from _repeated("port", texts(profile, "ports", EACH, at=at))


_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def _address(url: str) -> str:
    """`url` in one spelling: scheme and host in lower case, no default port, no slash at its end. Without a user and
    password: these are refused elsewhere, and must not be quoted."""
    scheme, slashes, rest = re.sub(r"//[^/]*@", "//", url.strip()).partition("://")
    host, slash, path = rest.partition("/")
    scheme, host = scheme.casefold(), host.casefold()
    return f"{scheme}{slashes}{host.removesuffix(_DEFAULT_PORTS.get(scheme, '/'))}{slash}{path}".rstrip("/")


def _repeated(kind: str, found: Iterable[tuple[Path, str]]) -> Iterator[Finding]:
    first: dict[str, Path] = {}
    for at, value in found:
        if first.setdefault(value, at) is not at:
            what = f"the {kind} {quoted(value)} is there twice"
            yield Finding(at, what, "take one of them out, or give it another one", first=first[value])
