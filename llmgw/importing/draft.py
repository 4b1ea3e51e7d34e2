"""The catalog that grows out of a file: models and profiles as values, and the mapping they become.

Knows the catalog's fields and no kind of file. Judges nothing: `llmgw.importing.assembly` does.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from llmgw.placeholders import PORT, placeholder
from llmgw.problems import Path

_MARKS = re.compile(r"FILL-IN-[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Devices:
    """Accelerators asked of one node; `memory` as the catalog writes it."""

    count: int
    kind: str | None = None
    memory: str | None = None
    claim: str | None = None
    part: float | None = None
    """The share of each device's memory that was asked for; a claim follows from it where that memory is known."""
    mib: int | None = None
    """So much of each device's memory was asked for."""
    at: Path = ()
    """Where the share is asked for."""

    @property
    def is_share(self) -> bool:
        return self.part is not None or self.mib is not None

    def plain(self) -> dict[str, object]:
        return _given(count=self.count, kind=self.kind, memory=self.memory, claim=self.claim)


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """One way to launch a model. `at`: where the file says it."""

    at: Path
    name: str
    engine: str
    executable: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    devices: Devices | None = None
    host_memory: str | None = None
    nodes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    prefer_labels: Mapping[str, str] = field(default_factory=dict)
    weights: str | None = None
    image: str | None = None
    weight: int | None = None
    start_limit_s: float | None = None
    stop_limit_s: float | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """What has to be filled in before it can be launched."""
        texts = (self.executable or "", self.weights or "", *self.command, *self.args)
        return tuple(dict.fromkeys(mark for text in texts for mark in _MARKS.findall(text)))

    def plain(self, name: str) -> dict[str, object]:
        return {
            "name": name,
            "engine": self.engine,
            **_given(
                executable=self.executable,
                command=list(self.command),
                args=list(self.args),
                env=dict(self.env),
                secrets=dict(self.secrets),
                accelerators=[self.devices.plain()] if self.devices else [],
                host_memory=self.host_memory,
                nodes=list(self.nodes),
                labels=dict(self.labels),
                prefer_labels=dict(self.prefer_labels),
                weights=self.weights,
                image=self.image,
                weight=self.weight,
                start_limit_s=self.start_limit_s,
                stop_limit_s=self.stop_limit_s,
            ),
        }


MARK = "FILL-IN-"
"""Begins what stands in a launch for a value that the file names and does not hold."""
TO_FILL_IN = ("fill-in-how-it-is-launched", "--port", placeholder(PORT))
FILL_IN = "fill in how it is launched, then set its replicas: 0 until then"


def to_fill_in(at: Path, devices: Devices | None = None, command: tuple[str, ...] = TO_FILL_IN) -> ProfileDraft:
    """The profile of a model whose launch the file does not say, or llmgw cannot do: for a model of 0 replicas."""
    return ProfileDraft(at, "main", "command", command=command, devices=devices)


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """A model. `at`: its part of the file; `aliases` with the places that name them."""

    at: Path
    name: str
    profiles: tuple[ProfileDraft, ...]
    aliases: tuple[tuple[str, Path], ...] = ()
    least: int = 1
    most: int = 1
    priority: int | None = None
    idle_timeout_s: float | None = None
    group: str | None = None
    """Keeps apart from other models of this group."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    sleep_level: int | None = None
    """At which it sleeps in place of being stopped; None: it is stopped."""

    def plain(self, aliases: tuple[str, ...]) -> dict[str, object]:
        replicas: object = self.least if self.least == self.most else {"min": self.least, "max": self.most}
        return {
            "name": self.name,
            **_given(aliases=list(aliases)),
            **({} if replicas == 1 else {"replicas": replicas}),
            **_given(
                priority=self.priority,
                exclusive_group=self.group,
                idle_timeout_s=self.idle_timeout_s,
                idle="sleep" if self.sleep_level else None,
                sleep_level=self.sleep_level if self.sleep_level != 1 else None,
                metadata=dict(self.metadata),
            ),
            "profiles": [profile.plain(name) for name, profile in zip(self._names(), self.profiles, strict=True)],
        }

    def _names(self) -> Iterator[str]:
        """The profiles' names, made different where they are not."""
        taken: set[str] = set()
        for profile in self.profiles:
            name, number = identifier(profile.name), 2
            while name in taken:
                name, number = f"{identifier(profile.name)[:58]}-{number}", number + 1
            taken.add(name)
            yield name


def joined(first: ModelDraft, second: ModelDraft) -> ModelDraft:
    """Two entries of one public name as one model: counts added, a profile for each way to launch it."""
    known = [replace(profile, at=(), name="") for profile in first.profiles]
    further = tuple(profile for profile in second.profiles if replace(profile, at=(), name="") not in known)
    return replace(
        first,
        profiles=(*first.profiles, *further),
        aliases=(*first.aliases, *second.aliases),
        least=min(first.least + second.least, 10_000),
        most=min(first.most + second.most, 10_000),
    )


JOINED = "another entry serves the same name: the counts are added, and different launches are tried in their order"


@dataclass(frozen=True, slots=True)
class CatalogDraft:
    """What a source makes of a file. `engines`: extensions, by name, as the catalog writes them."""

    models: tuple[ModelDraft, ...] = ()
    engines: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def identifier(text: str, default: str = "main") -> str:
    """`text` as a name that a profile or engine may have."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in text)
    return kept.lstrip("._-")[:63] or default


def _given(**fields: object) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None and value not in ([], {})}
