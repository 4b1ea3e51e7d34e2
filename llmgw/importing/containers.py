"""`docker run …` and `podman run …` as an engine in an image, where the engine is one of the table or is told its port.

Flags of docker itself cannot be given in a catalog: the plane gives devices and ports, agents mount weights.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.importing.commands import Started, started
from llmgw.importing.launching import Launch, unfillable
from llmgw.placeholders import PORT, placeholder
from llmgw.problems import Path

_ALONE = re.compile(
    r"--(rm|init|detach|interactive|tty|privileged|read-only|no-healthcheck|publish-all|replace)|-[ditP]+"
)
"""Flags without a value; every other one has one."""

IMAGES: Mapping[str, Started] = {
    r"(.*/)?vllm-openai": Started("vllm", ()),
    r"(.*/)?llama\.cpp:(.*-)?server(-.*)?": Started("llama.cpp", (), "/app/llama-server"),
    r"(.*/)?text-generation-inference": Started("tgi", ()),
}
"""Images whose own entrypoint is an engine of the table: (.*/)? is the registry, a tag may follow."""

NO_FLAGS = "flags of docker cannot be given: agents give devices, mount weights and use the host's network"


@dataclass(frozen=True, slots=True)
class Contained:
    """`begun`: what runs, and in which image. `flags`: those that are left behind."""

    begun: Started
    variables: tuple[tuple[str, str | None], ...]
    mounts: tuple[tuple[str, str], ...]
    """(path on the host, path within)."""
    devices: int | None
    flags: tuple[str, ...]


def contained(argv: Sequence[str]) -> Contained | None:
    """None where `argv` runs no container, or one that could not be told its port."""
    if not argv or argv[0].rsplit("/", 1)[-1] not in ("docker", "podman") or [*argv[1:2]] != ["run"]:
        return None
    flags, rest = _flags(argv[2:])
    if not rest or unfillable(rest[0]) is not None:
        return None
    begun = _begun(rest[0], _entered(flags, rest[1:]), _inner_ports(flags))
    if begun is None:
        return None
    return Contained(
        replace(begun, image=rest[0]),
        tuple(_variable(value) for flag, value in flags if flag in ("-e", "--env")),
        tuple(mount for flag, value in flags if (mount := _mount(flag, value)) is not None),
        _devices(flags),
        tuple(dict.fromkeys(flag for flag, _ in flags if flag not in ("-e", "--env", "--rm", "--init"))),
    )


def take(launch: Launch, found: Contained, at: Path) -> None:
    """What the container was given, into a launch whose arguments were read; the command stands at `at`."""
    for name, value in found.variables:
        if value is None:
            launch.secret(name, at, "given from the agent's secrets, in place of docker's environment", alone=False)
        else:
            launch.variable(name, value, at, alone=False)
    for flag in found.flags:
        launch.account.lose(at, NO_FLAGS, flag)
    if launch.pinned is None:
        launch.pinned = found.devices
    launch.weights = _on_the_host(launch.weights, found.mounts)


def _flags(items: Sequence[str]) -> tuple[list[tuple[str, str]], Sequence[str]]:
    """The flags before the image with their values, and the image with what follows."""
    flags: list[tuple[str, str]] = []
    index = 0
    while index < len(items) and items[index].startswith("-"):
        flag, equals, value = items[index].partition("=")
        index += 1
        if not equals and not _ALONE.fullmatch(flag):
            value = items[index] if index < len(items) else ""
            index += 1
        flags.append((flag, value))
    return flags, items[index:]


def _entered(flags: Sequence[tuple[str, str]], rest: Sequence[str]) -> tuple[str, ...]:
    """What runs, with `--entrypoint` in front."""
    return (*(value for flag, value in flags if flag == "--entrypoint" and value), *rest)


def _begun(image: str, argv: tuple[str, ...], ports: frozenset[str]) -> Started | None:
    program = started(argv) if argv else Started("command", ())
    if program.engine != "command":
        return program
    name = image.partition("@")[0]
    for pattern, known in IMAGES.items():
        if re.fullmatch(rf"{pattern}(:[\w.-]+)?", name):
            return replace(known, args=argv)
    told = tuple(placeholder(PORT) if item in ports else item for item in argv)
    return Started("container", told) if any(placeholder(PORT) in item for item in told) else None


def _inner_ports(flags: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Ports within the container that `-p HOST:INNER` publishes."""
    published = (value for flag, value in flags if flag in ("-p", "--publish"))
    return frozenset(value.rsplit(":", 1)[-1].partition("/")[0] for value in published)


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _mount(flag: str, value: str) -> tuple[str, str] | None:
    if flag in ("-v", "--volume"):
        host, _, inner = value.partition(":")
        return host, inner.partition(":")[0]
    if flag == "--mount":
        given = dict(pair.partition("=")[::2] for pair in value.split(","))
        return given.get("source", given.get("src", "")), given.get("target", given.get("dst", ""))
    return None


def _devices(flags: Sequence[tuple[str, str]]) -> int | None:
    """`--gpus 2`, `--gpus "device=0,1"`; None where all are given, or it is not said."""
    named = [value for flag, value in flags if flag == "--device" and re.search(r"gpu=(?!all)", value)]
    for flag, value in flags:
        text = value.strip("\"'")
        if flag == "--gpus" and text.isdigit():
            return min(int(text), 1024)
        if flag == "--gpus" and text.startswith("device="):
            return len([device for device in text.removeprefix("device=").split(",") if device])
    return len(named) or None


def _on_the_host(weights: str | None, mounts: Sequence[tuple[str, str]]) -> str | None:
    """Weights by their path on the host, where they lie below a mount."""
    path = (weights or "").removeprefix("file://")
    if weights is None or path == weights:
        return weights
    for host, inner in mounts:
        if host.startswith("/") and unfillable(host) is None and path.startswith(f"{inner.rstrip('/')}/"):
            return f"file://{host.rstrip('/')}/{path.removeprefix(inner.rstrip('/')).lstrip('/')}"
    return weights
