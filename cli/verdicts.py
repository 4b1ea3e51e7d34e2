"""A fleet's verdict on a catalog or an order, as an operator reads it."""

from typing import TYPE_CHECKING

from rich.text import Text

from cli.output import print_page, warn
from cli.tables import word

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.plan import Verdict


def is_taken(verdict: "Verdict") -> bool:
    """In force, or in force already."""
    return verdict.judgement in ("accepted", "unchanged")


def print_verdict(verdict: "Verdict") -> None:
    """What was changed to standard output; what is wrong, or worth a look, to standard error."""
    if is_taken(verdict):
        digest = f" (digest {verdict.digest[:12]})" if verdict.differences else ""
        print_page(Text.assemble(word(verdict.judgement), f": {verdict.text}{digest}"))
        for difference in verdict.differences:
            print_page(Text(f"  {difference}"))
    else:
        said = verdict.text.removeprefix(f"{verdict.judgement}: ")
        warn(f"{verdict.judgement}: {said}", *(f"  {problem}" for problem in verdict.problems))
    warn(*(f"warning: {warning}" for warning in verdict.warnings))
