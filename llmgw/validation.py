"""The verdict on a catalog as sent: accepted whole, or refused with every problem at once. It never raises.

Rules are rows of `ITEM_RULES` or `FLEET_RULES`, each a function over the raw input (`llmgw.checking`): a mistake in
one place hides no mistake in another. Only what needs an accepted catalog (size, fit) waits for the rest to be right.

An edit changes a model or two of many: what a model or node means, and what the item rules found in it, is remembered
(`llmgw.checking.by_part`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from llmgw.catalog import MAX_PLAIN_BYTES, Catalog, catalog_bytes
from llmgw.checking import by_part, characters, doubts, fleet, launches, names, secrets, structure, weights
from llmgw.checking.by_part import Parts
from llmgw.checking.sent import Rule, Sent
from llmgw.problems import Finding, Lines, Position, Problem, Severity, placed, position_of

catalog_schema = structure.catalog_schema

FLEET_RULES: tuple[Rule, ...] = (
    names.public_names,
    names.duplicate_ids,
    fleet.references,
)
"""Rules that compare models with each other, or with pools, nodes and routers."""

ITEM_RULES: tuple[Rule, ...] = (
    characters.characters,
    launches.engines,
    launches.sleepers,
    launches.programs,
    weights.weights,
    launches.served_names,
    launches.owned_flags,
    launches.arguments,
    launches.environment,
    names.duplicates_in_models,
    secrets.secrets_in_clear,
)
"""Rules that judge a model or node by itself and the engine table, never by another or by a position in the source."""


@dataclass(frozen=True, slots=True)
class Checked:
    """`catalog` is None exactly when there are `problems`. Both lists are in the order of the document."""

    catalog: Catalog | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def check(
    raw: object,
    lines: Lines | None = None,
    *,
    limit_bytes: int = MAX_PLAIN_BYTES,
    like: Catalog | None = None,
) -> Checked:
    """Judge `raw` (JSON types; anything else is a problem, not an error).

    `lines` gives positions in the source. `limit_bytes` bounds the canonical JSON: `catalog.MAX_PLAIN_BYTES`, or
    `MAX_COMPRESSED_BYTES` for a catalog that came compressed. Parts that are as in the catalog `like` become the very
    same values, so that what is known of them is known again (`llmgw.memo`).
    """
    sent = Sent(raw, lines or {})
    if not isinstance(raw, dict):
        return Checked(None, (placed(Finding((), "a catalog is a mapping", "begin with `models:`"), sent.lines),))
    parts = by_part.apart(raw)
    catalog, found = _shaped(parts, like)
    found += [finding for rule in FLEET_RULES for finding in rule(sent)]
    found += by_part.findings(parts, ITEM_RULES)
    if catalog is not None and not any(finding.severity is Severity.ERROR for finding in found):
        found += [*_too_large(catalog, limit_bytes), *fleet.worth_a_look(catalog), *doubts.doubts(catalog)]
    found.sort(key=_document_order(sent.lines))
    problems = tuple(placed(f, sent.lines) for f in found if f.severity is Severity.ERROR)
    warnings = tuple(placed(f, sent.lines) for f in found if f.severity is Severity.WARNING)
    return Checked(None if problems else catalog, problems, warnings)


def _shaped(parts: Parts, like: Catalog | None) -> tuple[Catalog | None, list[Finding]]:
    try:
        catalog = by_part.sharing(Catalog.model_validate(by_part.known(parts)), like)
    except ValidationError as error:
        return None, list(structure.findings(error, parts.raw))
    by_part.learn(parts, catalog)
    return catalog, []


# --- the whole -----------------------------------------------------------------------------------------------------


def _too_large(catalog: Catalog, limit_bytes: int) -> Iterator[Finding]:
    size = catalog_bytes(catalog)
    if size > limit_bytes:
        yield Finding(
            (),
            f"the catalog is {size:,} bytes as plain JSON, and {limit_bytes:,} are allowed this way",
            "send it compressed with `llmgw apply`, or split the fleet",
        )


def _document_order(lines: Lines) -> Callable[[Finding], tuple[object, ...]]:
    """Sorts by position where the source has them, then by path: list items by number, keys by name."""

    def key(finding: Finding) -> tuple[object, ...]:
        steps = tuple((0, step, "") if isinstance(step, int) else (1, 0, step) for step in finding.at)
        return position_of(finding.at, lines) or Position(0, 0), steps

    return key
