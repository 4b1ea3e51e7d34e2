"""How values cross between the plane and Temporal: pydantic's JSON, and what cannot be read is a value, too.

The SDK drops a signal whose arguments its converter cannot read, and nothing but a worker's log tells of it. Here they
arrive as `Undecodable`, so that a handler can note the refusal. Only where no type is asked for: an activity's result
that cannot be read stays an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter

SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An argument that could not be read, and why."""

    problem: str


class TolerantPayloadConverter(PydanticPayloadConverter):
    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        found: list[Any] = []
        for payload, hint in zip_longest(payloads, type_hints or ()):
            try:
                found += super().from_payloads([payload], None if hint is None else [hint])
            except Exception as error:
                if hint is not None and hint is not Any:
                    raise
                found.append(Undecodable(" ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_CHARS]))
        return found


def problem_of(args: Iterable[object]) -> str | None:
    """What is wrong with the first argument that could not be read; None: all could."""
    found = ((number, arg) for number, arg in enumerate(args, start=1) if isinstance(arg, Undecodable))
    number, arg = next(found, (0, None))
    return None if arg is None else f"argument {number} cannot be read: {arg.problem}"


data_converter = DataConverter(payload_converter_class=TolerantPayloadConverter)
"""For every client, worker and replayer of the plane."""
