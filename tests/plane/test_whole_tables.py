"""How the plane reads its own table: in one piece, or in pages of one revision."""

import zlib
from typing import Any, cast

import pytest
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError

from activities.publish import TablePage, read_table


class Answers:
    """A workflow that answers queries as it is told; the last answer is repeated."""

    def __init__(self, packed: bytes | None, *pages: TablePage) -> None:
        self.packed = packed
        self.pages = list(pages)
        self.asked: list[tuple[str, Any]] = []

    async def query(self, name: str, page: int | None = None, result_type: type | None = None) -> object:
        del result_type
        self.asked.append((name, page))
        if name == "table":
            if self.packed is None:
                raise WorkflowQueryFailedError("Query handler for 'table' expected but not found")
            return self.packed
        return self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]

    async def read(self) -> list[TablePage]:
        return await read_table(cast("WorkflowHandle[object, object]", self))


WHOLE = TablePage(revision=7, digest="d7")


async def test_a_table_is_read_in_one_piece() -> None:
    workflow = Answers(zlib.compress(WHOLE.model_dump_json().encode()))
    assert await workflow.read() == [WHOLE]
    assert workflow.asked == [("table", None)]


@pytest.mark.parametrize("packed", [b"", None], ids=["too large for one piece", "an older worker answers"])
async def test_pages_of_one_revision_are_read_where_there_is_no_whole(packed: bytes | None) -> None:
    mixed = (TablePage(revision=6, digest="d6", next_page=1), TablePage(revision=7, digest="d7"))
    one = (TablePage(revision=7, digest="d7", next_page=1), TablePage(revision=7, digest="d7"))
    workflow = Answers(packed, *mixed, *one)
    assert await workflow.read() == list(one)
    assert [name for name, _ in workflow.asked] == ["table"] + ["endpoints"] * 4
