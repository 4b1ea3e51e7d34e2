"""A fleet's verdict on a catalog or an order, as an operator reads it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.text import Text

from cli.output import print_page, warn
from cli.tables import word

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.plan import Verdict


HOW_BY_SIGNAL = ". To confirm"
"""From here on a held catalog's text says how to confirm it by signals."""
CONFIRM = "Look at it with `llmgw plan`, and confirm it with --allow-removals: sending it again is no confirmation here"


def is_taken(verdict: "Verdict") -> bool:
    """In force, or in force already."""
    return verdict.judgement in ("accepted", "unchanged")


def print_verdict(verdict: "Verdict", told: Collection[str] = ()) -> None:
    """What was changed to standard output; what is wrong, or worth a look, to standard error. `told`: warnings that
    were told before."""
    if is_taken(verdict):
        digest = f" (digest {verdict.digest[:12]})" if verdict.differences else ""
        print_page(Text.assemble(word(verdict.judgement), f": {verdict.text}{digest}"))
        for difference in verdict.differences:
            print_page(Text(f"  {difference}"))
    else:
        said = verdict.text.removeprefix(f"{verdict.judgement}: ")
        if verdict.judgement == "held":
            said = held_text(said)
        warn(f"{verdict.judgement}: {said}", *(f"  {problem}" for problem in verdict.problems))
    warn(*(f"warning: {warning}" for warning in dict.fromkeys(verdict.warnings) if warning not in told))


def held_text(text: str) -> str:
    """Why a catalog is held, with how this command confirms it in place of how signals do."""
    return f"{held_because(text)}. {CONFIRM}"


def held_because(text: str) -> str:
    """Why alone."""
    return text.removeprefix("held: ").partition(HOW_BY_SIGNAL)[0]
