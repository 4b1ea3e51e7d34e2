"""How each kind of setting is read from its text; ValueError says what to write instead."""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from agent.auth import read_tokens


def node_id(text: str) -> str:
    if not text or len(text) > 128 or not all(char.isalnum() or char in "._-" for char in text):
        raise ValueError("a node id is 1 to 128 letters, digits, dots, dashes and underscores, such as gpu-07")
    return text


def listen_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:7811")
    return host.strip("[]"), int(port)


def url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is not an address such as http://gpu-07:7811")
    return text.rstrip("/")


def port_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) <= int(last) <= 65535):
        raise ValueError(f"{text!r} is not FIRST-LAST within 1024-65535, such as 21000-21999")
    return int(first), int(last)


def token_file(text: str) -> Path:
    path = Path(text)
    try:
        if not read_tokens(path):
            raise ValueError(f"{text} holds no token: write one per line")
    except OSError as error:
        raise ValueError(f"cannot read {text}: {error.strerror}") from error
    return path


def readable_file(text: str) -> Path:
    path = Path(text)
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {text}: {error.strerror}") from error
    return path.resolve()


def existing_folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise ValueError(f"{text} is not a folder: make it, or name another")
    return path.resolve()


def state_folder(text: str) -> Path:
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make {text}: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"{text} cannot be written by this user")
    return path.resolve()


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number above zero")
    return int(text)


def percent(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 99:
        raise ValueError(f"{text!r} is not a whole number from 1 to 99")
    return int(text)


def host_name(text: str) -> str:
    if not text or "/" in text or " " in text:
        raise ValueError(f"{text!r} is not a host name or address, such as 127.0.0.1")
    return text


def tool_name(text: str) -> str:
    if text != "none" and shutil.which(text) is None:
        raise ValueError(f"{text!r} is not on this node: name docker, podman, a path of one, or none")
    return text


def names(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
