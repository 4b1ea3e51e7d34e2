"""The fingerprint of a replica: a digest of the catalog's own inputs. Equal means the same running thing.

It never sees the rendering, names, aliases, ports, device ids, limits, weights of traffic or the plane's version, so
none of these restarts an engine. An absent field counts as its default. An engine of the operator's own counts with
its base, program, arguments and environment, because these are inputs of the launch as much as a profile's.
"""

from llmgw import canonical
from llmgw.catalog import Accelerators, Catalog, Idle, Model, Profile
from llmgw.ids import Fingerprint
from llmgw.rendering import weights_of


def fingerprint(model: Model, profile: Profile, catalog: Catalog) -> Fingerprint:
    """32 hex digits for `profile` of `model`, as `catalog` defines its engine."""
    return Fingerprint(canonical.digest(inputs(model, profile, catalog)))


def inputs(model: Model, profile: Profile, catalog: Catalog) -> dict[str, object]:
    """What the fingerprint is made of; fields with default values are left out, so that new ones change nothing."""
    fields: dict[str, object] = {
        "engine": profile.engine,
        "extension": _extension(profile.engine, catalog),
        "executable": profile.executable,
        "command": profile.command,
        "args": profile.args,
        "env": profile.env,
        "secrets": profile.secrets,
        "accelerators": [_asked(item) for item in profile.accelerators],
        "weights": weights_of(model, profile),
        "image": profile.image,
        "sleeps": model.idle is Idle.SLEEP,
        "sleep_level": model.sleep_level if model.idle is Idle.SLEEP and model.sleep_level != 1 else None,
    }
    return {name: value for name, value in fields.items() if value}


def _asked(item: Accelerators) -> dict[str, object]:
    """What is asked of the devices, not which ones they are."""
    asked: dict[str, object] = {
        "count": item.count,
        "kind": item.kind and item.kind.casefold(),
        "memory_mib": item.memory_mib,
    }
    return asked if item.claim_mib is None else {**asked, "claim_mib": item.claim_mib}


def _extension(name: str, catalog: Catalog) -> dict[str, object] | None:
    extension = catalog.engines.get(name)
    if extension is None:
        return None
    fields = extension.model_dump(
        mode="json", include={"base", "executable", "args", "env", "devices"}, exclude_defaults=True
    )
    return dict(fields)
