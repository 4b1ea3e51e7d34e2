"""Launch specs and fingerprints of a catalog, worked out once per catalog and kept: they are asked for every pass."""

from collections import OrderedDict
from dataclasses import dataclass, field

from llmgw import canonical
from llmgw.catalog import Catalog, Model, Profile
from llmgw.fingerprint import fingerprint
from llmgw.ids import Fingerprint, ModelName, SpecId
from llmgw.memo import Latest
from llmgw.rendering import render, unnameable
from llmgw.wire import LaunchSpec


def launch_of(catalog: Catalog, model: Model, profile: Profile, vendor: str | None) -> tuple[SpecId, LaunchSpec | None]:
    """The launch of a profile on devices of `vendor`, and its id; None where the engine cannot name such devices."""
    name = model.name, profile.name, vendor
    return _LAUNCHES.get(name, (catalog, model, profile), lambda: _launch(catalog, model, profile, vendor))


Launch = tuple[SpecId, LaunchSpec | None]
_LAUNCHES: Latest[tuple[ModelName, str, str | None], Launch] = Latest(20_000)


def _launch(catalog: Catalog, model: Model, profile: Profile, vendor: str | None) -> Launch:
    if unnameable(profile, catalog, vendor) is not None:
        return SpecId(""), None
    spec = render(model, profile, catalog, vendor)
    return SpecId(canonical.digest(spec.model_dump(mode="json", exclude_defaults=True), size=8)), spec


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprint to index of the profile, per model, in the order of the profiles (the first of equals counts)."""

    of: dict[ModelName, dict[Fingerprint, int]] = field(default_factory=dict)


_KEPT: OrderedDict[int, tuple[Catalog, Fingerprints]] = OrderedDict()
_MAX_KEPT = 64
"""The catalog in force and the last good entries of models that roll."""


def fingerprints(catalog: Catalog) -> Fingerprints:
    """All fingerprints of a catalog. A catalog never changes, so they are kept by its identity."""
    kept = _KEPT.get(id(catalog))
    if kept is not None and kept[0] is catalog:
        _KEPT.move_to_end(id(catalog))
        return kept[1]
    made = Fingerprints({model.name: _known_of(model, catalog) for model in catalog.models})
    _KEPT[id(catalog)] = (catalog, made)
    while len(_KEPT) > _MAX_KEPT:
        _KEPT.popitem(last=False)
    return made


_OF: Latest[ModelName, dict[Fingerprint, int]] = Latest(20_000)


def _known_of(model: Model, catalog: Catalog) -> dict[Fingerprint, int]:
    """Of a model in a catalog that has much in common with the one before."""
    return _OF.get(model.name, (model, catalog.engines), lambda: _of(model, catalog))


def _of(model: Model, catalog: Catalog) -> dict[Fingerprint, int]:
    found: dict[Fingerprint, int] = {}
    for index, profile in enumerate(model.profiles):
        found.setdefault(fingerprint(model, profile, catalog), index)
    return found
