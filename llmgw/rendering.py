"""From a profile to the launch spec that an agent runs. Pure: the same catalog gives the same spec, byte for byte.

Arguments are handed on as a list in the order given, repeats and empty items kept; nothing is quoted, split or
expanded but the placeholder of the served name. Which devices, which port and which path is the node's to fill in.
"""

from llmgw.catalog import Catalog, Idle, Model, Profile
from llmgw.engines import Engine, EngineRow, SleepMode, WeightsRule, engine_of
from llmgw.placeholders import SERVED_NAME, fill
from llmgw.weights import hub_source
from llmgw.wire import ContainerSpec, LaunchSpec, MetricNames, Readiness, StopBehaviour


def render(model: Model, profile: Profile, catalog: Catalog, vendor: str | None) -> LaunchSpec:
    """The launch of `profile` on devices of `vendor` (as the node reports it; None when the profile asks for none).

    Raises ValueError where `unnameable` gives a reason: ask it first.
    """
    if (reason := unnameable(profile, catalog, vendor)) is not None:
        raise ValueError(reason)
    engine = engine_of(catalog, profile.engine)
    row = engine.row
    term_limit_s = profile.stop_limit_s if row.term_limit_s is None else min(row.term_limit_s, profile.stop_limit_s)
    served, sleep = {SERVED_NAME: model.name}, _sleep(row, model)
    return LaunchSpec(
        engine=engine.name,
        argv=tuple(fill(item, served) for item in _argv(model, profile, engine, sleep)),
        env={name: fill(value, served) for name, value in _environment(profile, engine, sleep).items()},
        secret_env=dict(profile.secrets),
        served_name=model.name,
        devices=engine.selection(vendor) if profile.accelerators and vendor else None,
        extra_ports=profile.ports,
        readiness=_readiness(row, profile),
        metrics=_metrics(row, profile, engine),
        stop=StopBehaviour(
            term_limit_s=term_limit_s,
            second_term_limit_s=row.second_term_limit_s,
            kill_limit_s=row.kill_limit_s,
        ),
        start_limit_s=profile.start_limit_s,
        stall_limit_s=profile.stall_limit_s,
        container=_container(profile, engine),
        weights=weights_of(model, profile),
        sleep=None if sleep is None else sleep.levels[model.sleep_level],
    )


def _sleep(row: EngineRow, model: Model) -> SleepMode | None:
    return row.sleep if model.idle is Idle.SLEEP and row.sleep and model.sleep_level in row.sleep.levels else None


def _container(profile: Profile, engine: Engine) -> ContainerSpec | None:
    if profile.image is None:
        return None
    return ContainerSpec(image=profile.image, own_entrypoint=_runs_entrypoint(profile, engine))


def _runs_entrypoint(profile: Profile, engine: Engine) -> bool:
    """Nothing names a program: the image's own runs."""
    return engine.row.needs_image and not (engine.row.executable or profile.executable or profile.command)


def _readiness(row: EngineRow, profile: Profile) -> Readiness:
    if profile.probe_completion is None:
        return row.readiness
    return row.readiness.model_copy(update={"probe_completion": profile.probe_completion})


def _metrics(row: EngineRow, profile: Profile, engine: Engine) -> MetricNames:
    """None for an engine that sleeps by itself and that its own metrics page would keep awake."""
    flags = {item.partition("=")[0] for item in (*engine.args, *profile.args)}
    return MetricNames() if flags & set(row.sleep_flags) else row.metrics


def unnameable(profile: Profile, catalog: Catalog, vendor: str | None) -> str | None:
    """Why devices of `vendor` cannot be named to the profile's engine, or None when they can."""
    if not profile.accelerators:
        return None
    if vendor and engine_of(catalog, profile.engine).selection(vendor) is not None:
        return None
    return f"engine {profile.engine} has no way to name devices of vendor {vendor or 'unknown'}"


def weights_of(model: Model, profile: Profile) -> str | None:
    """Source of the weights: the profile's own, else the model's."""
    return profile.weights or model.weights


def _argv(model: Model, profile: Profile, engine: Engine, sleep: SleepMode | None) -> tuple[str, ...]:
    row = engine.row
    program = row.executable
    if profile.executable is not None:
        program = (profile.executable, *program[1:])
    if _runs_entrypoint(profile, engine):
        program = (profile.image or "",)  # the first item names the program; nothing else does
    weights = _weights_args(row.weights, weights_of(model, profile))
    own = (*engine.args, *profile.args)
    sleeps = [flag for flag in (() if sleep is None else sleep.args) if flag not in own]
    return (*program, *profile.command, *weights, *sleeps, *own, *row.serve_args)


def _weights_args(rule: WeightsRule, source: str | None) -> tuple[str, ...]:
    if source is None:
        return ()
    hub = hub_source(source)
    if hub is not None and rule.hub_flags is not None:
        repo_flag, file_flag = rule.hub_flags
        return (repo_flag, hub.repo, *((file_flag, hub.file) if hub.file else ()))
    revision = hub.revision if hub is not None and rule.revision_flag else None
    return (*rule.args, *((rule.revision_flag, revision) if revision else ()))


def _environment(profile: Profile, engine: Engine, sleep: SleepMode | None) -> dict[str, str]:
    hidden = {} if profile.accelerators else engine.row.without_devices
    return {**hidden, **engine.row.env, **({} if sleep is None else sleep.env), **profile.env}
