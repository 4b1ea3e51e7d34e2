"""What the processes of one router say to each other: documents over a pair of sockets, each with its length before it.

The keeper holds tables, disk and the control API; followers serve clients. Never carries anything of a request but its
model's name.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from llmgw.ids import ModelName, ReplicaId
from llmgw.wire import RouterTable, TablePatch
from router.counts import Counts

_LENGTH = struct.Struct("!I")


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True)


class Follow(_Said):
    """Keeper: put this in force, and answer `Done`. `slots`: where its endpoints are counted."""

    kind: Literal["follow"] = "follow"
    number: int
    offer: RouterTable | TablePatch
    slots: dict[ReplicaId, int]


class Serve(_Said):
    """Keeper: take connections from now on."""

    kind: Literal["serve"] = "serve"


class Tell(_Said):
    """Keeper: answer `Told`."""

    kind: Literal["tell"] = "tell"
    number: int


class Reload(_Said):
    """Keeper: read the key files again."""

    kind: Literal["reload"] = "reload"


class Done(_Said):
    """Follower: what had this number is in force."""

    kind: Literal["done"] = "done"
    number: int


class Told(_Said):
    """Follower: its counts at this moment."""

    kind: Literal["told"] = "told"
    number: int
    counts: Counts


class Wanted(_Said):
    """Follower: what is asked for in vain here: model -> (requests that wait, when it was last wanted)."""

    kind: Literal["wanted"] = "wanted"
    asked: dict[ModelName, tuple[int, float]]


Order = Annotated[Follow | Serve | Tell | Reload, Field(discriminator="kind")]
Word = Annotated[Done | Told | Wanted, Field(discriminator="kind")]
ORDERS: TypeAdapter[Order] = TypeAdapter(Order)
WORDS: TypeAdapter[Word] = TypeAdapter(Word)


def framed(document: BaseModel) -> bytes:
    body = document.model_dump_json().encode()
    return _LENGTH.pack(len(body)) + body


async def documents(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Bodies one by one, until the other side has ended."""
    while True:
        try:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            yield await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
