"""Warnings about an accepted catalog that contradicts itself, or says twice what can count once. Nothing is refused
here: what was accepted once has to stay acceptable."""

from collections.abc import Iterable, Iterator, Sequence

from llmgw.catalog import LISTS, Catalog, Model, Profile
from llmgw.problems import Finding, Path, Severity, quoted
from llmgw.sentences import are, counted


def doubts(catalog: Catalog) -> Iterator[Finding]:
    """Warnings, model by model, then about the fleet."""
    zones = {node.zone for node in catalog.nodes}
    declared = [sum(devices.count for devices in node.devices) for node in catalog.nodes]
    for i, model in enumerate(catalog.models):
        at = ("models", i)
        yield from _canary(at, model)
        if model.spread_zones and zones == {None}:
            what, mend = "no declared node is in a zone, so there is nothing to spread over", "give nodes a `zone`"
            yield Finding((*at, "spread_zones"), what, mend, Severity.WARNING)
        for j, profile in enumerate(model.profiles):
            yield from _profile((*at, "profiles", j), profile)
        yield from _devices(at, model, declared)
    for section in ("pools", "nodes", "routers"):
        ids = [getattr(part, LISTS[section]) for part in getattr(catalog, section)]
        yield from _alike(ids, [(section, i, LISTS[section]) for i in range(len(ids))], "two, and easily taken for one")


def _canary(at: Path, model: Model) -> Iterator[Finding]:
    if model.canary is not None and model.canary.replicas > model.replicas.max > 0:
        yield Finding(
            (*at, "canary", "replicas"),
            f"a canary of {counted(model.canary.replicas, 'replica')} is more than the model ever has "
            f"({model.replicas.max}): nothing keeps the version before meanwhile",
            "try a new version on fewer replicas, or raise `replicas`",
            Severity.WARNING,
        )


def _profile(at: Path, profile: Profile) -> Iterator[Finding]:
    yield from _alike(profile.nodes, [(*at, "nodes", n) for n in range(len(profile.nodes))], "two nodes")
    for n, item in enumerate(profile.accelerators):
        places = [(*at, "accelerators", n, "devices", k) for k in range(len(item.devices))]
        yield from _alike(item.devices, places, "two devices")
    for key, value in sorted(profile.prefer_labels.items()):
        if profile.labels.get(key, value) != value:
            yield Finding(
                (*at, "prefer_labels", key),
                f"{key}={value} is preferred, and {key}={profile.labels[key]} is required: no node has both",
                "take it out of `labels` or of `prefer_labels`",
                Severity.WARNING,
            )


def _devices(at: Path, model: Model, declared: Sequence[int]) -> Iterator[Finding]:
    """Whole devices that all replicas need at least, beyond all that nodes are declared with. `declared`: of each."""
    if not declared or not all(declared):
        return
    whole = [sum(item.count for item in profile.accelerators if item.claim_mib is None) for profile in model.profiles]
    asked = model.replicas.min * min(whole)
    if asked > sum(declared) and max(declared) >= min(whole):
        yield Finding(
            (*at, "replicas"),
            f"{are(model.replicas.min, 'replica')} wanted, of {counted(min(whole), 'device')} each, and all declared "
            f"nodes have {sum(declared)} together",
            "lower it, or declare more nodes",
            Severity.WARNING,
        )


def _alike(names: Sequence[str], places: Iterable[Path], what: str) -> Iterator[Finding]:
    """Names that are there twice, or differ only in case. `what` they are in the second case."""
    first: dict[str, tuple[Path, str]] = {}
    for name, at in zip(names, places, strict=True):
        before_at, before = first.setdefault(name.casefold(), (at, name))
        if before_at is at:
            continue
        same = before == name
        said = "is there twice" if same else f"differs only in case from {quoted(before)}, so they are {what}"
        yield Finding(
            at,
            f"{quoted(name)} {said}",
            "take one of them out" if same else "write it as it is meant, or choose another name",
            Severity.WARNING,
            first=before_at,
        )
