"""A local server that plays the Hugging Face hub and a plain web server, with their bad manners on request."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"


@dataclass
class Hub:
    """What is served: (repo, revision) -> commit, (repo, commit) -> files; web path -> content."""

    revisions: dict[tuple[str, str], str] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    web: dict[str, bytes] = field(default_factory=dict)
    token: str | None = None
    told_size: dict[str, int] = field(default_factory=dict)
    """File -> a size that the hub tells instead of the true one."""
    stop_after: int | None = None
    """Answers with content end after so many bytes, until `more` is set."""
    drop_after: int | None = None
    """Answers with content end there, and so does their connection."""
    more: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(path, Range header) of every request for content."""
    sent: list[int] = field(default_factory=list)
    """Bytes of every answer with content."""
    tag: str = '"one"'
    url: str = ""

    def put(self, repo: str, files: dict[str, bytes], commit: str = COMMIT, revision: str = "main") -> None:
        self.revisions[repo, revision] = self.revisions[repo, commit] = commit
        self.files[repo, commit] = files

    def info(self, repo: str, revision: str) -> dict[str, object] | None:
        commit = self.revisions.get((repo, revision))
        if commit is None:
            return None
        siblings = [self._sibling(name, content) for name, content in self.files[repo, commit].items()]
        return {"id": repo, "sha": commit, "siblings": siblings}

    def _sibling(self, name: str, content: bytes) -> dict[str, object]:
        size = self.told_size.get(name, len(content))
        row = {"rfilename": name, "size": size, "blobId": hashlib.sha1(content, usedforsecurity=False).hexdigest()}
        if name.endswith((".safetensors", ".gguf")):
            sha256 = hashlib.sha256(content).hexdigest()
            row |= {"lfs": {"size": size, "sha256": sha256, "pointerSize": 100}}
        return row


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.hub.token is not None and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            self._answer(401, b"{}")
        elif path.startswith("/api/models/"):
            self._info(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            repo, _, rest = path[1:].partition("/resolve/")
            commit, _, name = rest.partition("/")
            self._content(path, self.hub.files.get((repo, commit), {}).get(name))
        else:
            self._content(path, self.hub.web.get(path))

    def _info(self, path: str) -> None:
        repo, _, revision = path.partition("/revision/")
        found = self.hub.info(repo, revision or "main")
        known = any(other == repo for other, _ in self.hub.revisions)
        code = {} if found else {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"}
        self._answer(200 if found else 404, json.dumps(found or {}).encode(), code)

    def _content(self, path: str, content: bytes | None) -> None:
        wanted = self.headers.get("range", "")
        self.hub.asked.append((path, wanted))
        if content is None:
            self._answer(404, b"no")
            return
        first = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        same = self.headers.get("if-range", self.hub.tag) == self.hub.tag
        goes_on = bool(wanted) and same and first < len(content)
        body = content[first:] if goes_on else content
        self.hub.sent.append(len(body))
        headers = {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if goes_on else {}
        self._answer(206 if goes_on else 200, body, headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"ETag": self.hub.tag, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        stop, drop = self.hub.stop_after, self.hub.drop_after
        try:
            if drop is not None and len(body) > drop:
                self.wfile.write(body[:drop])
                self.close_connection = True
                return
            if stop is None or len(body) <= stop:
                self.wfile.write(body)
                return
            self.wfile.write(body[:stop])
            self.wfile.flush()
            self.hub.more.wait(30)
            self.wfile.write(body[stop:])
        except OSError:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests want."""


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.more.set()
        server.shutdown()
        server.server_close()
        thread.join()


def tensors(size: int, salt: bytes = b"x") -> bytes:
    """A safetensors file with `size` bytes of data."""
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + (salt * size)[:size]


def model(size: int = 1000, salt: bytes = b"x") -> dict[str, bytes]:
    """A repository of two shards with their index."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1]}}).encode()
    shards = {name: tensors(size, salt + bytes([number])) for number, name in enumerate(names)}
    return {"config.json": b"{}", "model.safetensors.index.json": index, **shards}
