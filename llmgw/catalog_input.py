"""From what somebody sent to a catalog's mapping, plain or compressed. Never judges its content.

Plain catalogs are readable in Temporal's web UI; `llmgw apply` sends a large one as the envelope
`{"encoding": "zlib+base64", "catalog": "<text>"}`, because no payload may pass 256 KB. A second argument
`{"plan": "<hash>"}` names the plan that was looked at: the catalog is refused when the world has moved since.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.canonical import canonical_json
from llmgw.catalog import MAX_COMPRESSED_BYTES, MAX_PLAIN_BYTES
from llmgw.sentences import cut, json_kind

ENCODING = "zlib+base64"

HOW = 'send one JSON object such as {"models": [...]}, or let `llmgw apply FILE` read YAML and send it'


class NotACatalogError(ValueError):
    """The arguments hold no catalog mapping. The text says why and how to mend it."""


def compress_catalog(raw: Mapping[str, object]) -> dict[str, str]:
    """The envelope that carries `raw` (JSON types only)."""
    return {"encoding": ENCODING, "catalog": base64.b64encode(zlib.compress(canonical_json(raw), 9)).decode()}


@dataclass(frozen=True, slots=True)
class SentCatalog:
    """A catalog's mapping as it was sent, and how large its canonical JSON may be when it came that way."""

    raw: Mapping[str, object]
    limit_bytes: int
    plan: str = ""
    """Hash of the plan that was looked at before (`llmgw.stamp`); empty when none was."""


def sent_catalog(args: object) -> SentCatalog:
    """The catalog in the first argument of `args`, expanded, and what the second says. Raises `NotACatalogError`."""
    plan = ""
    if isinstance(args, Sequence) and not isinstance(args, str):
        if len(args) not in (1, 2):
            raise NotACatalogError(f"a catalog is one argument, got {len(args)}: {HOW}")
        plan = _plan_of(args[1]) if len(args) == 2 else ""
        args = args[0]
    expanded = expand(args)
    return SentCatalog(_mapping(expanded), MAX_PLAIN_BYTES if expanded is args else MAX_COMPRESSED_BYTES, plan)


def _plan_of(conditions: object) -> str:
    """The hash in the second argument."""
    if isinstance(conditions, Mapping) and set(conditions) == {"plan"} and isinstance(conditions["plan"], str):
        return conditions["plan"].strip()
    raise NotACatalogError(f'a catalog is one argument, got 2, and the second is not {{"plan": "<hash>"}}: {HOW}')


def expand(raw: object) -> object:
    """`raw` itself, or what its envelope holds. Raises `NotACatalogError`; never makes more than 2 MiB of it."""
    if not isinstance(raw, Mapping) or "encoding" not in raw:
        return raw
    packed = raw.get("catalog")
    if raw["encoding"] != ENCODING or not isinstance(packed, str) or len(raw) != 2:
        shape = f'{{"encoding": "{ENCODING}", "catalog": "<text>"}}'
        raise NotACatalogError(f"a compressed catalog is {shape} and nothing else: let `llmgw apply FILE` make it")
    try:
        text = _inflated(base64.b64decode(packed, validate=True)).decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise NotACatalogError(f"the compressed catalog is damaged ({cut(str(error), 100)}): send it again") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also stands for a number of too many digits
        raise NotACatalogError(f"the compressed catalog holds no JSON ({cut(str(error), 100)}): {HOW}") from error


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(packed, MAX_COMPRESSED_BYTES + 1)
    if len(data) > MAX_COMPRESSED_BYTES:
        limit = MAX_COMPRESSED_BYTES >> 20
        raise NotACatalogError(f"the catalog is larger than {limit} MiB: split the fleet into several")
    if not inflater.eof or inflater.unused_data:
        raise NotACatalogError("the compressed catalog is cut off or has something behind it: send it again")
    return data


def _mapping(raw: object) -> Mapping[str, object]:
    if isinstance(raw, Mapping):
        return raw
    yaml = " (YAML is read by `llmgw apply` only)" if isinstance(raw, str) else ""
    raise NotACatalogError(f"a catalog is one JSON object, not {json_kind(raw)}{yaml}: {HOW}")
