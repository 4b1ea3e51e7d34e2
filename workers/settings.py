"""Settings of a worker process: flags, then environment. One error names every problem."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workflows.client import Connection

INSTALLATION = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class WorkerSettings(BaseModel):
    """What `llmgw worker` needs beside Temporal's own client profile."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fleet: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Name of the fleet; its workflow is `fleet-NAME`."""
    installation: str | None = Field(default=None, pattern=INSTALLATION)
    """Id of your installation: made once, kept by you, the same on every control host."""
    state_dir: Path | None = None
    """Where the installation id is kept when none is given."""
    token_file: Path | None = None
    """Bearer token for agents and routers, on its first line."""
    peer_ca: Path | None = None
    """Authority of agents' and routers' certificates; None = the system's."""
    peer_cert: Path | None = None
    """This worker's own certificate, for agents and routers that ask for one."""
    peer_key: Path | None = None
    metrics_listen: str | None = "127.0.0.1:9464"
    """HOST:PORT of the page and the Prometheus metrics; None = neither."""
    page_token_file: Path | None = None
    """Bearer tokens of those who may look at the page, one on a line; None = that of `token_file`."""
    identity: str | None = None
    deployment: str | None = None
    """Worker deployment name, with `build_id`: makes Temporal route by version."""
    build_id: str | None = None
    max_history: int = Field(default=1500, ge=100, le=40_000)
    """Continue as new after this many events."""
    fresh: bool = False
    """Start an ended fleet anew."""
    ensure: bool = True
    """Start the fleet's workflow if it does not run."""
    connection: Connection = Connection()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if problems := lacking(vars(self)):
            raise ValueError("; ".join(problems))
        return self


def lacking(values: Mapping[str, object]) -> list[str]:
    """What the settings `values` lack taken together, a sentence each."""
    problems: list[str] = []
    if values.get("installation") is None and values.get("state_dir") is None:
        problems.append("give --installation ID, or --state-dir DIR where one is made and kept")
    if (values.get("peer_cert") is None) != (values.get("peer_key") is None):
        problems.append("a certificate for agents and routers takes both --peer-cert and --peer-key")
    if (values.get("deployment") is None) != (values.get("build_id") is None):
        problems.append("worker versioning takes both --deployment and --build-id")
    return problems


def page_tokens(settings: WorkerSettings) -> tuple[str, ...]:
    """Tokens that let one look; none = everybody who reaches the address may. ValueError when the file holds none."""
    path = settings.page_token_file or settings.token_file
    if path is None:
        return ()
    lines = (line.strip() for line in path.read_text().splitlines())
    if tokens := tuple(line for line in lines if line and not line.startswith("#")):
        return tokens
    raise ValueError(f"{path}: no token in it; put one bearer token on the first line")


def installation_id(settings: WorkerSettings, make: str) -> str:
    """The installation id: as given, else the one kept in the state directory, else `make`, kept from now on.

    Raises ValueError where what is kept is no id (a disk that was full, a copy cut short): another one would be
    refused by every agent.
    """
    if settings.installation is not None:
        return settings.installation
    if settings.state_dir is None:
        raise ValueError("neither an installation id nor a state directory")
    kept = settings.state_dir / "installation"
    if kept.exists():
        return _read_id(kept)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(".new")
    with draft.open("w") as file:
        file.write(make + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(kept)
    return make


def _read_id(kept: Path) -> str:
    found = kept.read_text(errors="replace").strip()
    if re.fullmatch(INSTALLATION, found):
        return found
    raise ValueError(
        f"{kept} holds no installation id: write into it the one that another control host keeps, or that the log of "
        "an earlier worker names; delete it only where no fleet was ever commanded"
    )
