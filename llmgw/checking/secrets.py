"""Rules that keep secrets out of catalogs: a catalog goes into histories, logs and status pages.

No finding quotes the value it is about.
"""

import re
from collections.abc import Iterator

from llmgw.checking.raw import EACH, every_text, find, text_list, texts
from llmgw.checking.sent import Sent
from llmgw.problems import Finding, Path, path_text, quoted

_SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|KEY)$", re.IGNORECASE)
"""Names of variables and flags whose values are secrets. Plurals (`MAX_TOKENS`) are numbers, not tokens."""

_HARMLESS = re.compile(r"(?:[0-9.]*|true|false|none|null|/.*|\./.*|\$\{llmgw:.*)", re.IGNORECASE | re.DOTALL)
"""Numbers, switches, paths of files and placeholders."""

_KNOWN_SECRETS = (
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{16,}"),
    ("an API key", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("an AWS access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a Google API key", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("a Slack token", r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    ("an NVIDIA API key", r"\bnvapi-[A-Za-z0-9_-]{16,}"),
    ("a signed web token", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a password in a URL", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/@:]+:[^\s/@]+@"),
)
_KNOWN_SECRET = tuple((what, re.compile(pattern)) for what, pattern in _KNOWN_SECRETS)

_MEND = "name it under `secrets` (VARIABLE: secret name) and give the value to the node's agent"
_MEND_FLAG = "use the engine's variable for it under `secrets` (VARIABLE: secret name) instead of the flag"


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret."""
    return _SECRET_NAME.search(name.strip("-").replace("-", "_")) is not None


def is_secret(value: str, name: str = "") -> bool:
    """Whether `value` looks like a secret, or stands under the name of one."""
    known = any(pattern.search(value) for _, pattern in _KNOWN_SECRET)
    return known or (is_secret_name(name) and not _HARMLESS.fullmatch(value))


def secrets_in_clear(sent: Sent) -> Iterator[Finding]:
    """Values that look like secrets, or stand where secrets stand."""
    told: set[Path] = set()
    for finding in (*_known(sent.raw), *_in_environment(sent.raw), *_in_arguments(sent.raw)):
        if finding.at not in told:
            told.add(finding.at)
            yield finding


def _known(raw: object) -> Iterator[Finding]:
    for at, value in every_text(raw):
        what = next((what for what, pattern in _KNOWN_SECRET if pattern.search(value)), None)
        if what is not None:
            yield Finding(at, f"this looks like {what} in clear text", _MEND)


def _in_environment(raw: object) -> Iterator[Finding]:
    for pattern in (("models", EACH, "profiles", EACH, "env", EACH), ("engines", EACH, "env", EACH)):
        for at, value in texts(raw, *pattern):
            if _SECRET_NAME.search(str(at[-1])) and not _HARMLESS.fullmatch(value):
                yield Finding(at, f"{path_text(at[-1:])} is a secret in clear text", _MEND)


def _in_arguments(raw: object) -> Iterator[Finding]:
    for field in ("args", "command"):
        for at, args in find(raw, "models", EACH, "profiles", EACH, field):
            yield from _in_flags(at, args)
    for at, args in find(raw, "engines", EACH, "args"):
        yield from _in_flags(at, args)


def _in_flags(at: Path, args: object) -> Iterator[Finding]:
    """`--api-key=value`, or `--api-key` with the value in the next item."""
    items = dict(text_list(args))
    for index, item in items.items():
        if not item.startswith("-"):
            continue
        flag, equals, value = item.partition("=")
        where = index if equals else index + 1
        value = value if equals else items.get(where, "")
        is_secret = _SECRET_NAME.search(flag.strip("-").replace("-", "_"))
        if is_secret and not _HARMLESS.fullmatch(value) and not (value.startswith("-") and not equals):
            yield Finding((*at, where), f"the value of {quoted(flag)} is a secret in clear text", _MEND_FLAG)
