"""The placeholders of a launch: what the catalog may write and what is filled in later. No shell, no other syntax.

The plane fills `${llmgw:served_name}` when it renders; the agent fills the rest, each of them exactly once and never
looking again into what it has put in.
"""

import re
from collections.abc import Iterator, Mapping

PORT = "port"
"""The port the engine must listen on."""
HOST = "host"
"""The address it must bind."""
WEIGHTS = "weights"
"""Path of the weights on the node."""
PYTHON = "python"
"""The agent's own Python interpreter."""
SERVED_NAME = "served_name"
"""The name the engine must answer to; filled by the plane."""

NODE_KEYS = frozenset({PORT, HOST, WEIGHTS, PYTHON})
KEYS = NODE_KEYS | {SERVED_NAME}
"""Besides these there is `port:NAME`, for each further port that a profile declares."""

OPENING = "${llmgw:"

_PLACEHOLDER = re.compile(r"\$\{llmgw:([^{}]*)\}")
_NAMED_PORT = re.compile(r"port:(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_SHELL = re.compile(r"\$\{(?!llmgw:)([A-Za-z_][A-Za-z0-9_]*)")


def placeholder(key: str) -> str:
    """`port` → `${llmgw:port}`."""
    return f"{OPENING}{key}}}"


def keys_in(text: str) -> Iterator[str]:
    """Keys of the placeholders in `text`, known or not, in order."""
    return (match[1] for match in _PLACEHOLDER.finditer(text))


def port_name(key: str) -> str | None:
    """`port:side` → `side`; None for anything else."""
    match = _NAMED_PORT.fullmatch(key)
    return match["name"] if match else None


def is_broken(text: str) -> bool:
    """Whether `text` opens a placeholder that it does not close."""
    return text.count(OPENING) != sum(1 for _ in keys_in(text))


def shell_like(text: str) -> str | None:
    """The first `${WORD…}` in `text` that looks as if somebody expected it to be expanded; never what follows WORD,
    because the default in `${TOKEN:-…}` may be the secret itself.
    """
    match = _SHELL.search(text)
    return f"${{{match[1]}}}" if match else None


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with the placeholders that `values` knows replaced, in one pass; the others stay as they are."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)
