"""Engines in containers, through the command line of docker or podman: the same life cycle as processes.

The attached client (`run`, later `attach`) is the engine's leader: its output, its signals and its exit code are the
container's. A container outlives its client, so it is known by its labels, and gone only when the tool lists it no
more. It never touches a container without our labels, and decides nothing about a replica.
"""

import asyncio
import hashlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.container_user import AGENT, IMAGE, Standing, own_ids, standing
from agent.foreign import foreign_json
from agent.handles import raise_soft_limit
from agent.launch import Invocation
from agent.ledger import Record
from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.wire import ContainerSpec, Device

HOME, NODE, REPLICA, RECORD = "llmgw.home", "llmgw.node", "llmgw.replica", "llmgw.record"
"""Labels that every container of ours carries."""

ANSWER_S = 30.0
"""A tool that says nothing for so long has failed."""

_OF_THE_CLIENT = frozenset({"HOME", "PATH", "TMPDIR"})
_PREFIXES_OF_THE_CLIENT = ("DOCKER_", "CONTAINER", "XDG_", "PODMAN_", "BUILDAH_", "LD_")
"""Variables that the client reads itself: these are handed over by value, all others by name alone, unseen in `ps`."""

_ASCEND_DEVICES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")


@dataclass(frozen=True)
class Found:
    """A container that carries our labels."""

    name: str
    replica: ReplicaId
    runs: bool
    pid: int
    """Of its first process, in this machine's numbers; 0 when it does not run or is elsewhere."""
    record: Record | None
    """As its label tells; None when that is damaged."""
    out_of_memory: bool = False
    """The kernel ended it for want of memory."""


class ToolFailed(Exception):  # noqa: N818 - told as it is
    """The tool did not do or tell what it was asked; nothing is known of its containers."""


@dataclass(frozen=True)
class ContainerTool:
    """docker or podman at `path`. `home`: the state folder of this agent, whose containers alone it sees."""

    path: str
    home: str
    environ: Mapping[str, str]
    user: str = IMAGE
    """As whom containers run: `image`, `agent` or UID[:GID]."""

    async def standing(self) -> Standing:
        """What a container's processes are to be. Raises ToolFailed where the tool has to be asked and says nothing."""
        name, own = Path(self.path).name, own_ids()
        rootless = own[0] != 0 and ("podman" in name or await self._is_rootless())
        return standing(name, self.user, own, raise_soft_limit(), rootless=rootless, dev=Path("/dev"))

    async def _is_rootless(self) -> bool:
        """Of docker, whose daemon may run as the agent's own user."""
        if self.user != AGENT:
            return False
        return "rootless" in await self._ask("info", "--format", "{{.SecurityOptions}}")

    async def found(self, replica: ReplicaId | None = None) -> tuple[Found, ...]:
        """Our containers, running or not. Raises ToolFailed."""
        filters = ["--filter", f"label={HOME}={self.home}"]
        if replica is not None:
            filters += ["--filter", f"label={REPLICA}={replica}"]
        names = (await self._ask("ps", "--all", "--quiet", "--no-trunc", *filters)).split()
        return parse_inspect(await self._ask("inspect", "--type", "container", *names)) if names else ()

    async def remove(self, names: Iterable[str]) -> None:
        """Kill and remove. What was gone already is no failure; whether it is gone, `found` tells.

        Killed by its own command first: podman's `rm --force` would ask with TERM once more, and wait ten seconds.
        """
        for name in names:
            await self._run("kill", "--signal", "KILL", name)
            await self._run("rm", "--force", "--volumes", name)

    async def _ask(self, *words: str) -> str:
        code, said, complaint = await self._run(*words)
        if code != 0 and not (words[0] == "inspect" and said.strip().startswith("[")):  # one vanished meanwhile
            raise ToolFailed(f"{Path(self.path).name} {words[0]}: {' '.join((complaint or said).split())[:200]}")
        return said

    async def _run(self, *words: str) -> tuple[int, str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                self.path,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self.environ),
            )
        except OSError as error:
            raise ToolFailed(f"{self.path}: {error.strerror}") from error
        try:
            said, complaint = await asyncio.wait_for(process.communicate(), ANSWER_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ToolFailed(f"{Path(self.path).name} {words[0]}: no answer within {ANSWER_S:g} s") from None
        return process.returncode or 0, said.decode(errors="replace"), complaint.decode(errors="replace")


def container_tool(
    wanted: str | None, home: str, environ: Mapping[str, str], user: str = IMAGE
) -> ContainerTool | None:
    """The tool named, or podman or docker as found on PATH; None for `none`, and where there is none.

    Its environment is the agent's without the agent's own settings and secrets."""
    names = ("docker", "podman") if wanted is None else () if wanted == "none" else (wanted,)
    path = next((found for name in names if (found := shutil.which(name)) is not None), None)
    client = {name: value for name, value in environ.items() if not name.startswith("LLMGW_")}
    return None if path is None else ContainerTool(path, home, client, user)


# --- pure ----------------------------------------------------------------------------------------------------------


def container_name(record: Record, node: NodeId) -> str:
    """One name per attempt; different replicas never share one, whatever their ids are made of."""
    told = "".join(char for char in record.replica if char.isascii() and (char.isalnum() or char in "._-"))
    digest = hashlib.sha256(f"{record.home}\0{node}\0{record.replica}\0{record.start.attempt}".encode()).hexdigest()
    return f"llmgw-{told[:40]}-{digest[:12]}"


@dataclass(frozen=True)
class Mount:
    """A path that the container sees where the node has it."""

    path: str
    writable: bool = False


def run_invocation(
    tool: str,
    inside: Invocation,
    spec: ContainerSpec,
    record: Record,
    node: NodeId,
    devices: tuple[tuple[Device, int], ...],
    mounts: tuple[Mount, ...],
    client: Mapping[str, str],
    who: Standing = Standing(),  # noqa: B008 - frozen
) -> Invocation:
    """The client's command line and environment for `inside`, which runs within the image.

    The host's network is used: ports are the node's own. `devices`: each with its number; `client`: the environment
    that the client itself runs with.
    """
    entry = () if spec.own_entrypoint else ("--entrypoint", inside.argv[0])
    argv = (
        *(tool, "run", "--name", container_name(record, node)),
        *(word for key, value in _labels(record, node).items() for word in ("--label", f"{key}={value}")),
        *("--network", "host", "--ipc", "host", *_init(Path(tool).name), "--restart", "no"),
        *_device_flags(Path(tool).name, devices, who),
        *who.user_flags(),
        *who.handle_flags(),
        *_no_more_devices(inside.env, devices),
        *(word for mount in mounts for word in ("--mount", _mount(mount))),
        *(word for name, value in inside.env.items() for word in ("--env", _variable(name, value))),
        *entry,
        spec.image,
        *inside.argv[1:],
    )
    own = {name: value for name, value in inside.env.items() if not _is_the_clients(name)}
    return Invocation(argv=argv, env={**client, **own})


def attach_invocation(tool: str, name: str, client: Mapping[str, str]) -> Invocation:
    """Again a leader for a container whose client has ended: its output, signals and exit code."""
    return Invocation(argv=(tool, "attach", "--no-stdin", "--sig-proxy=true", name), env=client)


def numbered_anew(env: Mapping[str, str], variables: Iterable[str], devices: tuple[Device, ...]) -> dict[str, str]:
    """Within a container NVIDIA devices are counted from zero: those that it was given, in the order of the bus."""
    if not devices or any(device.vendor != "nvidia" for device in devices):
        return dict(env)
    given = ",".join(str(number) for number in range(len(devices)))
    return {**env, **{variable: given for variable in variables if variable in env}}


def parse_inspect(text: str) -> tuple[Found, ...]:
    """`inspect` of docker or podman. Raises ToolFailed when it is no such document."""
    try:
        rows = foreign_json(text)
        if not isinstance(rows, list):
            raise TypeError("no list")
        return tuple(_found(row) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed(f"inspect told nothing that is known here: {error}") from error


def _found(row: Mapping[str, Any]) -> Found:
    state, labels = row["State"], row["Config"]["Labels"] or {}
    try:
        record = Record.model_validate_json(labels.get(RECORD, ""))
    except ValidationError:
        record = None
    return Found(
        name=str(row["Name"]).lstrip("/"),
        replica=ReplicaId(labels.get(REPLICA, "")),
        runs=str(state.get("Status", "")).lower() not in ("exited", "dead", "created", "configured", "stopped"),
        pid=int(state.get("Pid") or 0),
        record=record,
        out_of_memory=state.get("OOMKilled") is True,
    )


def _labels(record: Record, node: NodeId) -> dict[str, str]:
    launch = record.start.launch.model_copy(update={"argv": record.start.launch.argv[:1], "env": {}, "secret_env": {}})
    slim = record.model_copy(update={"start": record.start.model_copy(update={"launch": launch})})
    return {HOME: record.home, NODE: node, REPLICA: record.replica, RECORD: slim.model_dump_json(exclude_defaults=True)}


def _device_flags(tool: str, devices: tuple[tuple[Device, int], ...], who: Standing) -> tuple[str, ...]:
    """What shows the container its devices; what else it then sees of them, its environment narrows."""
    vendors = {device.vendor for device, _ in devices}
    flags: list[str] = []
    nvidia: list[DeviceId] = [device.id for device, _ in devices if device.vendor == "nvidia"]
    if nvidia and "podman" in tool:  # by the Container Device Interface
        flags += [word for name in nvidia for word in ("--device", f"nvidia.com/gpu={name}")]
    elif nvidia:
        flags += ["--gpus", f'"device={",".join(nvidia)}"']
    if "amd" in vendors:
        flags += ["--device", "/dev/kfd", "--device", "/dev/dri", *who.group_flags()]
    if "ascend" in vendors:
        chips = [f"/dev/davinci{number}" for device, number in devices if device.vendor == "ascend"]
        flags += [word for path in (*chips, *_ASCEND_DEVICES) for word in ("--device", path)]
    return tuple(flags)


def _init(tool: str) -> tuple[str, ...]:
    """A first process that takes signals and buries the dead: as such, a program without handlers ignores TERM.

    docker brings one along; podman's is a package of its own, and a run fails where that is missing.
    """
    return () if "podman" in tool else ("--init",)


def _no_more_devices(env: Mapping[str, str], devices: tuple[tuple[Device, int], ...]) -> tuple[str, ...]:
    """Images ask for all NVIDIA devices, and are given them where that runtime is the default: none unless claimed."""
    if "NVIDIA_VISIBLE_DEVICES" in env or any(device.vendor == "nvidia" for device, _ in devices):
        return ()
    return ("--env", "NVIDIA_VISIBLE_DEVICES=void")


def _mount(mount: Mount) -> str:
    """As a line of CSV, which is what the tools read."""
    fields = ["type=bind", f"source={mount.path}", f"target={mount.path}", *([] if mount.writable else ["readonly"])]
    quoted = ('"' + field.replace('"', '""') + '"' if {",", '"'} & set(field) else field for field in fields)
    return ",".join(quoted)


def _variable(name: str, value: str) -> str:
    return f"{name}={value}" if _is_the_clients(name) else name


def shown_by_the_client(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the variables whose values would stand in the client's command line."""
    return tuple(sorted(name for name in names if _is_the_clients(name)))


def _is_the_clients(name: str) -> bool:
    return name in _OF_THE_CLIENT or name.startswith(_PREFIXES_OF_THE_CLIENT)
