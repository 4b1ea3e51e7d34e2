"""What is executed for a replica: program, argv, environment; in a container, the client's. It starts nothing."""

from collections.abc import Mapping
from pathlib import Path

from agent.contained import Contained
from agent.containers import shown_by_the_client
from agent.launch import Invocation, Place, render
from agent.ledger import Record
from agent.marks import mark_environment
from agent.mounts import mounts_for, really_at
from agent.surroundings import Surroundings
from agent.weights import finding
from llmgw.wire import Refusal


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
    if contained is not None and (shown := shown_by_the_client(secrets)):
        return f"secrets as {', '.join(shown)} would be seen in the container tool's command line: use other variables"
    if contained is not None and weights.startswith("/"):
        weights = str(really_at(Path(weights)))
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
    mounts = mounts_for(weights, around.settings.weights_root)
    return contained.invocation(made, record, around.devices(), mounts)
