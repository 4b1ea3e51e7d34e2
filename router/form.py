"""The `model` field of a form with files (multipart/form-data, RFC 7578), as speech and images are sent: found and
exchanged in place. Everything else, the files above all, stays as the client sent it, byte for byte.

Never decodes a file. A second `model` is refused, as in `router.body`.
"""

import itertools
import re
from dataclasses import dataclass
from email.message import Message

from router.body import BadBody

FORM = "multipart/form-data"
MAX_HEAD_BYTES = 8192
"""Of one part's headers."""
MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class FormField:
    """The requested name, and the body around the field's value."""

    name: str
    body: bytes
    start: int
    end: int

    def replaced(self, name: str) -> bytes:
        """The body with another name in place of the requested one."""
        return self.body[: self.start] + name.encode() + self.body[self.end :]


def find_model_in_form(body: bytes, content_type: str) -> FormField | BadBody:
    """The `model` of a form. `content_type`: the whole header, which names the boundary."""
    boundary = _parameter(content_type, "boundary")
    if not boundary:
        return BadBody("the Content-Type of the form names no boundary")
    spans = []
    for start, end in _parts(body, boundary.encode()):
        head, gap, _ = body[start : min(end, start + MAX_HEAD_BYTES)].partition(b"\r\n\r\n")
        if gap and _field_of(head) == "model":
            spans.append((start + len(head) + len(gap), end))
    if not spans:
        return BadBody("the form has no field `model`", missing=True)
    if len(spans) > 1:
        return BadBody("the form has more than one `model`")
    start, end = spans[0]
    try:
        name = body[start : min(end, start + MAX_NAME_BYTES)].decode()
    except UnicodeDecodeError:
        return BadBody("`model` is not UTF-8")
    return FormField(name, body, start, end) if name else BadBody("`model` must not be empty", missing=True)


def _parts(body: bytes, boundary: bytes) -> list[tuple[int, int]]:
    """Where the headers of each part begin, and where its content ends."""
    lines = list(re.finditer(rb"(?:\A|\r\n)--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\r\n|\Z)", body))
    return [
        (line.end() + len(b"\r\n"), following.start())
        for line, following in itertools.pairwise(lines)
        if line.group(1) is None
    ]


def _field_of(head: bytes) -> str:
    """The name of the field that a part's headers describe; empty for none."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            return _parameter(value.decode("utf-8", "replace").strip(), "name")
    return ""


def _parameter(header: str, name: str) -> str:
    """A parameter of a header's value, without quotes; empty for none."""
    message = Message()
    message["content-disposition"] = re.sub(r"[\r\n]", " ", header)
    found = message.get_param(name, "", "content-disposition")
    return found if isinstance(found, str) else ""
