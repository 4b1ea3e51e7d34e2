"""Who may command: the order of tokens (DESIGN §5). Used by agents, routers and the plane alike."""

from enum import StrEnum

from llmgw.wire import Owner, Token


class Fence(StrEnum):
    NEWER = "newer"
    SAME = "same"  # a repeat of what was last heard: answered again, changes nothing
    STALE = "stale"
    FOREIGN = "foreign"  # another installation or fleet: the two cannot be ordered


def compare(offered: Token, held: Token | None) -> Fence:
    """Where `offered` stands against the highest token `held`."""
    if held is None:
        return Fence.NEWER
    if (offered.installation, offered.fleet) != (held.installation, held.fleet):
        return Fence.FOREIGN
    if (offered.epoch, offered.seq) == (held.epoch, held.seq):
        return Fence.SAME
    return Fence.NEWER if (offered.epoch, offered.seq) > (held.epoch, held.seq) else Fence.STALE


def owner_of(token: Token) -> Owner:
    return Owner(installation=token.installation, fleet=token.fleet)
