"""Files larger than one answer: fetched range by range, gone on with where it broke, from any kind of server."""

import hashlib
from pathlib import Path

import httpx
import pytest

from agent.weights import pieces
from agent.weights.pieces import FromWeb, Piece, PullError

CONTENT = bytes(range(256)) * 40
LIMIT = 1000


class Server:
    """Gives at most `LIMIT` bytes in one answer, as the hub's does 50 GB, and breaks off where it is told."""

    def __init__(self, *, ranges: bool = True, tag: str = '"one"', breaks_at: int | None = None) -> None:
        self.asked: list[str | None] = []
        self.ranges, self.tag, self.breaks_at = ranges, tag, breaks_at

    def __call__(self, request: httpx.Request) -> httpx.Response:
        wanted = request.headers.get("range")
        self.asked.append(wanted)
        headers = {"etag": self.tag} if self.tag else {}
        same = request.headers.get("if-range") in (None, self.tag)
        if wanted is None or not self.ranges or not same:
            return httpx.Response(200, stream=httpx.ByteStream(self._broken(CONTENT)), headers=headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = CONTENT[int(first) : int(last) + 1 if last else None]
        if len(part) > LIMIT:
            return httpx.Response(403, text="too much for one answer")
        headers["content-range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(CONTENT)}"
        return httpx.Response(206, stream=httpx.ByteStream(self._broken(part)), headers=headers)

    def _broken(self, content: bytes) -> bytes:
        if self.breaks_at is None or len(self.asked) < 3:
            return content
        cut, self.breaks_at = self.breaks_at, None
        return content[:cut]


def piece(folder: Path, server: Server, *, hashed: bool, size: int | None = len(CONTENT)) -> tuple[Piece, list[int]]:
    client = httpx.Client(transport=httpx.MockTransport(server))
    digest = hashlib.sha256(CONTENT).hexdigest() if hashed else None
    return Piece("m", size, folder / "m", FromWeb(client, "http://hub/m", validated=hashed), digest), []


@pytest.fixture(autouse=True)
def _small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_AT_ONCE", LIMIT)


@pytest.mark.parametrize("hashed", [True, False], ids=["of the hub", "of a web server"])
def test_a_file_above_what_one_answer_holds_comes_in_ranges_and_every_byte_is_counted_once(
    tmp_path: Path, hashed: bool
) -> None:
    server = Server()
    one, grown = piece(tmp_path, server, hashed=hashed)
    one.bring(grown.append)
    assert one.final.read_bytes() == CONTENT
    assert sum(grown) == len(CONTENT)
    assert server.asked[0] == f"bytes=0-{LIMIT - 1}"
    assert len(server.asked) == -(-len(CONTENT) // LIMIT)
    assert list(tmp_path.iterdir()) == [one.final]


def test_what_came_before_an_answer_broke_off_is_not_asked_for_again(tmp_path: Path) -> None:
    server = Server(breaks_at=300)
    one, grown = piece(tmp_path, server, hashed=True)
    one.bring(grown.append)
    assert one.final.read_bytes() == CONTENT
    assert server.asked[3] == f"bytes={2 * LIMIT + 300}-{3 * LIMIT + 299}"
    assert sum(grown) == len(CONTENT)


def test_a_server_that_knows_no_ranges_gives_all_at_once(tmp_path: Path) -> None:
    server = Server(ranges=False)
    one, grown = piece(tmp_path, server, hashed=False)
    one.bring(grown.append)
    assert (one.final.read_bytes(), len(server.asked), sum(grown)) == (CONTENT, 1, len(CONTENT))


def test_a_file_that_changes_between_two_ranges_begins_anew(tmp_path: Path) -> None:
    server = Server()
    one, grown = piece(tmp_path, server, hashed=False)
    one.part.write_bytes(b"of another file")
    one.part.with_name("m.incomplete.from").write_text('"\\"other\\""')
    one.bring(grown.append)
    assert one.final.read_bytes() == CONTENT
    assert sum(grown) == len(CONTENT) - len(b"of another file")


def test_a_server_that_stops_giving_is_a_failure_and_no_endless_asking(tmp_path: Path) -> None:
    def empty(request: httpx.Request) -> httpx.Response:
        return httpx.Response(206, stream=httpx.ByteStream(b""), headers={"content-range": "bytes 0-0/10240"})

    client = httpx.Client(transport=httpx.MockTransport(empty))
    one = Piece("m", len(CONTENT), tmp_path / "m", FromWeb(client, "http://hub/m", validated=True), "0" * 64)
    with pytest.raises(PullError, match="0 of 10240 bytes came"):
        one.bring(lambda _: None)


def test_a_file_whose_size_nobody_tells_is_asked_for_once(tmp_path: Path) -> None:
    server = Server()
    one, grown = piece(tmp_path, server, hashed=False, size=None)
    one.bring(grown.append)
    assert (one.final.read_bytes(), server.asked) == (CONTENT, [None])
