"""What is executed for a replica: program, argv, environment; in a container, the client's. It starts nothing."""

from collections.abc import Mapping

from agent.contained import Contained
from agent.containers import Mount
from agent.launch import Invocation, Place, render
from agent.ledger import Record
from agent.marks import mark_environment
from agent.settings import Settings
from agent.surroundings import Surroundings
from agent.weights import finding
from llmgw.wire import LaunchSpec, Refusal


def what_to_execute(record: Record, around: Surroundings, contained: Contained | None) -> tuple[str, Invocation] | str:
    """(path to execute, how), or why that cannot be: it is asked again at every start, since nodes change."""
    launch = record.start.launch
    executable = around.program(launch)
    secrets = around.secrets.resolve(launch.secret_env)
    weights = finding.argument(launch, around.settings.weights_root)
    if isinstance(executable, Refusal):
        return executable.message
    if isinstance(secrets, Refusal):
        return secrets.message
    if isinstance(weights, Refusal):
        return weights.message
    return executable, _invocation(record, around, contained, weights, secrets)


def _invocation(
    record: Record, around: Surroundings, contained: Contained | None, weights: str, secrets: Mapping[str, str]
) -> Invocation:
    inherited = {
        **(around.environ if contained is None else {}),
        **finding.hub_environment(around.settings.weights_root, record.start.launch.env),
    }
    place = Place(
        host=around.settings.engine_host,
        port=record.port,
        extra_ports=record.extra_ports,
        weights=weights,
        ordinals=around.devices().ordinals,
    )
    rendered = render(record.start.launch, place, record.start.claims, inherited)
    env = {**rendered.env, **secrets, **mark_environment(record, around.settings.node)}
    made = Invocation(argv=rendered.argv, env=env)
    if contained is None:
        return made
    mounts = mounts_for(record.start.launch, weights, around.settings)
    return contained.invocation(made, record, around.devices(), mounts)


def mounts_for(launch: LaunchSpec, weights: str, settings: Settings) -> tuple[Mount, ...]:
    """What a container sees of the node's disk: its weights, and the node's cache of them."""
    local = (launch.weights or "").startswith("file:")
    own = (Mount(weights),) if local else ()
    cache = (Mount(str(settings.weights_root), writable=True),) if settings.weights_root is not None else ()
    return (*cache, *own)
