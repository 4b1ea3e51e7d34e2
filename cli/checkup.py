"""What a check finds: how it stands with one thing, and how to mend it. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    FINE = "fine"
    DOUBT = "doubt"  # it works, or cannot be told; worth a look
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that was looked at. `mend` is empty where all is well."""

    subject: str
    health: Health
    what: str
    mend: str = ""


def fine(subject: str, what: str) -> Checked:
    return Checked(subject, Health.FINE, what)


def doubt(subject: str, what: str, mend: str) -> Checked:
    return Checked(subject, Health.DOUBT, what, mend)


def wrong(subject: str, what: str, mend: str) -> Checked:
    return Checked(subject, Health.WRONG, what, mend)


def is_sound(found: Iterable[Checked]) -> bool:
    """Whether nothing is wrong; doubts are allowed."""
    return all(checked.health is not Health.WRONG for checked in found)
