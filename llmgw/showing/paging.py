"""Pages of at most about 64 KB: an answer larger than that is no answer for a query or a history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

MAX_PAGE_BYTES = 60_000
"""Leaves room for what stands around the rows of a page."""
PAGE_SIZE = 500

K = TypeVar("K")
M = TypeVar("M", bound=BaseModel)


class View(BaseModel):
    """Something shown. Ages and durations in seconds; never an instant, never a secret's value."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, slots=True)
class Cut(Generic[M]):
    """The rows of one page. `next_page`: what to ask for to get the rest; None = this was the last."""

    rows: tuple[M, ...]
    next_page: int | None


def cut_page(keys: Sequence[K], page: int, page_size: int, row: Callable[[K], M]) -> Cut[M]:
    """The rows of `keys` from index `page` on, as many as fit. A page is named by the index of its first row.

    Only the rows of this page are made. A page never is empty while rows are left, so whoever follows `next_page`
    comes to an end.
    """
    start = min(max(page, 0), len(keys))
    rows: list[M] = []
    size = 0
    for key in keys[start : start + max(page_size, 1)]:
        made = row(key)
        size += size_of(made)
        if rows and size > MAX_PAGE_BYTES:
            break
        rows.append(made)
    end = start + len(rows)
    return Cut(tuple(rows), end if end < len(keys) else None)


def size_of(view: BaseModel) -> int:
    """Bytes of its JSON, as it travels."""
    return len(view.model_dump_json().encode()) + 1
