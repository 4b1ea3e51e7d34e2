"""Sentences about one waiting entry: what it waits for, since when, until when, and what would change it."""

from collections.abc import Iterator, Mapping

from llmgw.sentences import lasting
from llmgw.showing.scene import Scene
from llmgw.world import Waiting


def waiting_sentences(scene: Scene, waiting: Waiting, name: str) -> Iterator[str]:
    """`name`: of the model, replica, node or router that waits, as commands take it."""
    left_s = scene.left_s(waiting.until_s)
    until = f", and for another {lasting(left_s)} at most" if left_s is not None else ""
    yield f"It has waited for {lasting(scene.age_s(waiting.since_s))}{until}: {waiting.text.rstrip('.')}."
    if (mend := MENDS.get(waiting.code)) is not None:
        yield mend.format(name=name)


MENDS: Mapping[str, str] = {
    "backing_off": "Then it is tried again by itself; `llmgw wake {name}` tries at once.",
    "failed": "It is not tried again by itself: mend the profile in the catalog, or `llmgw wake {name}` to try again.",
    "hold": "It goes on by itself when the plane acts again.",
    "draining": "It goes on by itself then; until then, wanting the replica again takes the stop back.",
    "stuck": "If it still does not end, its devices are put out of use and the rest of the node goes on.",
    "crashes": "Then it takes replicas again, or at once with `llmgw uncordon {name}`.",
    "canary": "`llmgw promote {name}` goes on at once, `llmgw revert {name}` brings the last good version back.",
    "rolled_back": "An edit of the model, or `llmgw restart {name}`, tries the new version again.",
    "unreadable": "`llmgw restart {name}` stops it, and its model starts another if it wants one.",
    "unclaimed": "Nothing is done to it: name it in the catalog as it runs, or stop it on its node.",
    "quarantined": "They are used again when their node reports them free and in order.",
    "unreachable": "It is tried again by itself, at longer and longer intervals up to half a minute.",
    "set_aside": "It takes part again when only one node claims that identity.",
    "foreign": "It takes part when its agent is released by its present owner.",
    "brake": "It ends when enough nodes answer, or with `llmgw confirm-lost NODE` for those that are really gone.",
    "held": "Sending that catalog again confirms it; sending the one in force drops it.",
}
"""By the code of a waiting entry: what would change it."""
