"""Values that a history keeps as packed text where they are large: a fleet's plans and observations say the same words
thousands of times.

Small ones stay readable. It is text, not an object, so that a version that does not know it refuses it and never takes
it for an empty value. What limits such a value is what cannot be packed, ids above all.
"""

import base64
import binascii
import zlib
from typing import Any, Self

from pydantic import (
    BaseModel,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import to_json

PACKED_FROM = 16 * 1024
"""Bytes of JSON; smaller ones stay readable."""
MAX_BYTES = 192 * 1024
"""Of a packed value: no payload above 256 KB (DESIGN §7)."""
LEVEL = 6
_MARK = "zlib:"


class Packable(BaseModel):
    """As JSON a large value is packed text; read, it may be either."""

    @model_serializer(mode="wrap")
    def _to_history(self, plain: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any] | str:
        value: dict[str, Any] = plain(self)
        if info.mode != "json":
            return value
        raw = to_json(value)
        return value if len(raw) < PACKED_FROM else packed(raw)

    @model_validator(mode="wrap")
    @classmethod
    def _from_history(cls, value: object, plain: ModelWrapValidatorHandler[Self]) -> Self:
        return cls.model_validate_json(unpacked(value)) if isinstance(value, str) else plain(value)


def packed(raw: bytes) -> str:
    """A JSON document as text."""
    return _MARK + base64.b64encode(zlib.compress(raw, LEVEL)).decode()


def unpacked(text: str) -> bytes:
    """ValueError where the text was not made by `packed`."""
    if not text.startswith(_MARK):
        raise ValueError("not a packed value")
    try:
        return zlib.decompress(base64.b64decode(text.removeprefix(_MARK), validate=True))
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not a packed value: {error}") from error


class Weigher:
    """How large documents become together when they are packed, from above, while they are added one by one."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(LEVEL)
        self._packed = 0
        self._pending = 0
        self.plain_bytes = 0

    def add(self, raw: bytes) -> None:
        self._packed += len(self._packer.compress(raw))
        self._pending += len(raw)
        self.plain_bytes += len(raw)

    def fits(self, limit: int) -> bool:
        """Whether all together stays within `limit` bytes of packed text. What was added lately is taken as it is, and
        packed only where that would be too much."""
        if self._text_bytes() > limit and self._pending:
            self._packed += len(self._packer.flush(zlib.Z_SYNC_FLUSH))
            self._pending = 0
        return self._text_bytes() <= limit

    def _text_bytes(self) -> int:
        return (self._packed + self._pending) * 4 // 3
