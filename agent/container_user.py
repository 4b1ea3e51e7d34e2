"""As whom the processes of a container run, in which groups, and with how many file handles.

An image's own user is root as a rule, so what an engine writes below the weights' root then belongs to root, and an
agent that is not root cannot remove it. Where the tool runs rootless, root within is the agent's user without.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

IMAGE, AGENT = "image", "agent"
_NUMBERS = re.compile(r"[0-9]{1,10}(?::[0-9]{1,10})?")
_AMD_FILES = ("kfd", "dri/renderD*")
MOST_HANDLES = 65_536
"""What vLLM asks for by itself; docker gives 1024 where nobody says more."""


@dataclass(frozen=True)
class Standing:
    """What a container's processes are to the kernel. `user`: `UID[:GID]`, empty = the image's."""

    user: str = ""
    groups: tuple[str, ...] = ("video",)
    """That AMD's device files belong to; asked for with such a device alone."""
    handles: int | None = None
    """File handles for each process; None: as the tool has it."""

    def user_flags(self) -> tuple[str, ...]:
        return ("--user", self.user) if self.user else ()

    def group_flags(self) -> tuple[str, ...]:
        return tuple(word for group in self.groups for word in ("--group-add", group))

    def handle_flags(self) -> tuple[str, ...]:
        return ("--ulimit", f"nofile={self.handles}:{self.handles}") if self.handles else ()


def read_user(text: str) -> str:
    """`image`, `agent` or `UID[:GID]`. Raises ValueError; names are the image's own, and mean another uid in each."""
    if text not in (IMAGE, AGENT) and not _NUMBERS.fullmatch(text):
        raise ValueError(f"{text!r} is neither `image`, `agent` nor UID[:GID] in numbers, such as 1000:1000")
    return text


def standing(tool: str, wanted: str, own: tuple[int, int], hard_limit: int, *, rootless: bool, dev: Path) -> Standing:
    """How `tool` (its name) is to run containers. `own`: the agent's uid and gid; `hard_limit`: of its file handles."""
    user = {IMAGE: "", AGENT: "0:0" if rootless else f"{own[0]}:{own[1]}"}.get(wanted, wanted)
    podman = "podman" in tool
    if rootless and podman:  # the user's groups cannot be named within, only kept
        return Standing(user, ("keep-groups",))
    handles = None if podman or rootless else min(hard_limit, MOST_HANDLES)
    return Standing(user, tuple(_groups_of(dev)) or Standing.groups, handles)


def _groups_of(dev: Path) -> Iterable[str]:
    """In numbers: an image need not know their names."""
    found = {file.stat().st_gid for pattern in _AMD_FILES for file in dev.glob(pattern)}
    return (str(gid) for gid in sorted(found) if gid)


def own_ids() -> tuple[int, int]:
    return os.geteuid(), os.getegid()
