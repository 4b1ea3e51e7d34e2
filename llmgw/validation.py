"""The verdict on a catalog as sent: accepted whole, or refused with every problem at once. It never raises.

Rules are rows of `MODEL_RULES` or `FLEET_RULES`, each a function over the raw input (`llmgw.checking`): a mistake in
one place hides no mistake in another. Only what needs an accepted catalog (size, fit) waits for the rest to be right.

An edit changes a model or two of many: what the model rules found in a model is remembered by its text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pydantic import ValidationError

from llmgw.catalog import MAX_PLAIN_BYTES, Catalog, catalog_bytes
from llmgw.checking import characters, doubts, fleet, launches, names, secrets, structure, weights
from llmgw.checking.sent import Rule, Sent
from llmgw.problems import Finding, Lines, Position, Problem, Severity, placed, position_of

catalog_schema = structure.catalog_schema

FLEET_RULES: tuple[Rule, ...] = (
    names.public_names,
    names.duplicate_ids,
    fleet.references,
)
"""Rules that compare models with each other, or with pools, nodes and routers."""

MODEL_RULES: tuple[Rule, ...] = (
    characters.characters,
    launches.engines,
    launches.sleepers,
    launches.programs,
    weights.weights,
    launches.served_names,
    launches.owned_flags,
    launches.arguments,
    launches.environment,
    secrets.secrets_in_clear,
)
"""Rules that judge a model by itself and the engine table, never by another model or a position in the source."""


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
) -> Checked:
    """Judge `raw` (JSON types; anything else is a problem, not an error).

    `lines` gives positions in the source. `limit_bytes` bounds the canonical JSON: `catalog.MAX_PLAIN_BYTES`, or
    `MAX_COMPRESSED_BYTES` for a catalog that came compressed.
    """
    sent = Sent(raw, lines or {})
    catalog, found = _shaped(raw)
    found += [finding for rule in FLEET_RULES for finding in rule(sent)]
    found += _model_by_model(raw)
    if catalog is not None and not any(finding.severity is Severity.ERROR for finding in found):
        found += [*_too_large(catalog, limit_bytes), *fleet.worth_a_look(catalog), *doubts.doubts(catalog)]
    found.sort(key=_document_order(sent.lines))
    problems = tuple(placed(f, sent.lines) for f in found if f.severity is Severity.ERROR)
    warnings = tuple(placed(f, sent.lines) for f in found if f.severity is Severity.WARNING)
    return Checked(None if problems else catalog, problems, warnings)


def _shaped(raw: object) -> tuple[Catalog | None, list[Finding]]:
    if not isinstance(raw, dict):
        return None, [Finding((), "a catalog is a mapping", "begin with `models:`")]
    try:
        return Catalog.model_validate(raw), []
    except ValidationError as error:
        return None, list(structure.findings(error, raw))


# --- model by model ------------------------------------------------------------------------------------------------


def _model_by_model(raw: object) -> Iterator[Finding]:
    """What the model rules find, each model looked at alone and the rest of the catalog once."""
    models = raw.get("models") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(models, list):
        yield from _by_model_rules(raw)
        return
    yield from _by_model_rules({**raw, "models": []})
    engines = raw.get("engines")
    for index, model in enumerate(models):
        for finding in _about(model, engines):
            yield replace(finding, at=("models", index, *finding.at[2:]))


def _by_model_rules(raw: object) -> Iterator[Finding]:
    sent = Sent(raw, {})
    for rule in MODEL_RULES:
        yield from rule(sent)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a catalog, equal to another exactly if both are written the same way."""

    written: str
    part: object = field(compare=False)


def _about(model: object, engines: object) -> tuple[Finding, ...]:
    try:
        written = repr(model), repr(engines)  # unlike JSON it tells the key 1 from "1"
    except (RecursionError, ValueError):  # nested too deep, or a number of thousands of digits
        return _found(model, engines)
    return _remembered(_Part(written[0], model), _Part(written[1], engines))


@lru_cache(maxsize=4096)
def _remembered(model: _Part, engines: _Part) -> tuple[Finding, ...]:
    return _found(model.part, engines.part)


def _found(model: object, engines: object) -> tuple[Finding, ...]:
    found = _by_model_rules({"models": [model], "engines": engines})
    return tuple(finding for finding in found if finding.at[:1] == ("models",))


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
