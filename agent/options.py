"""The agent's settings as a table: flag, variable, how it is read, default, and what it is for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent import container_user, option_readers
from agent.declared import parse_devices, parse_sizes


@dataclass(frozen=True)
class Option:
    """A setting: its flag, its variable, how to read it. A reader raises ValueError saying what to write instead."""

    flag: str
    variable: str
    read: Callable[[str], Any]
    default: str | None
    metavar: str
    help: str

    @property
    def field(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")


OPTIONS = (
    Option("--node-id", "LLMGW_NODE_ID", option_readers.node_id, None, "ID", "this node's id, as the catalog calls it"),
    Option(
        "--listen",
        "LLMGW_AGENT_LISTEN",
        option_readers.listen_address,
        "127.0.0.1:7811",
        "HOST:PORT",
        "where to serve the plane; port 0 = any",
    ),
    Option(
        "--url",
        "LLMGW_AGENT_URL",
        option_readers.url,
        None,
        "URL",
        "how others reach this agent; default: the listen address",
    ),
    Option(
        "--state-dir",
        "LLMGW_AGENT_STATE_DIR",
        option_readers.state_folder,
        None,
        "DIR",
        "ledger and engine logs; must outlive restarts",
    ),
    Option(
        "--token-file",
        "LLMGW_TOKEN_FILE",
        option_readers.token_file,
        None,
        "FILE",
        "bearer tokens, one per line (all are valid: rotate by adding, then removing); none only on loopback",
    ),
    Option(
        "--devices",
        "LLMGW_AGENT_DEVICES",
        parse_devices,
        None,
        "SPEC",
        "declared devices: 4xh100:80GiB, a YAML or JSON list, a file of one, or none; default: what the machine tells",
    ),
    Option(
        "--device-memory",
        "LLMGW_AGENT_DEVICE_MEMORY",
        parse_sizes,
        "",
        "NAME=SIZE,…",
        "memory of devices that do not tell it (unified memory), by kind or id: NVIDIA GB10=110GiB",
    ),
    Option(
        "--port-range", "LLMGW_AGENT_PORT_RANGE", option_readers.port_range, "21000-21999", "A-B", "ports for engines"
    ),
    Option(
        "--engine-host",
        "LLMGW_AGENT_ENGINE_HOST",
        option_readers.host_name,
        None,
        "HOST",
        "the address engines bind, 0.0.0.0 = all; default: as --listen, so that who reaches the agent reaches them",
    ),
    Option(
        "--allow",
        "LLMGW_AGENT_ALLOW",
        option_readers.names,
        "",
        "NAME,…",
        "executables that may be started, names (found on PATH) or paths; default: all",
    ),
    Option(
        "--allow-images",
        "LLMGW_AGENT_ALLOW_IMAGES",
        option_readers.names,
        "",
        "PATTERN,…",
        "images that may be run, such as vllm/vllm-openai:*; default: all",
    ),
    Option(
        "--container-tool",
        "LLMGW_AGENT_CONTAINER_TOOL",
        option_readers.tool_name,
        None,
        "NAME",
        "docker or podman, by name or path, or none; default: the first of these found",
    ),
    Option(
        "--container-user",
        "LLMGW_AGENT_CONTAINER_USER",
        container_user.read_user,
        container_user.IMAGE,
        "WHO",
        "as whom containers run: image (its own user, mostly root), agent (this agent's user) or UID[:GID]",
    ),
    Option(
        "--secrets-dir",
        "LLMGW_AGENT_SECRETS_DIR",
        option_readers.existing_folder,
        None,
        "DIR",
        "a file per secret; default: variables LLMGW_SECRET_<NAME>",
    ),
    Option(
        "--weights-root",
        "LLMGW_AGENT_WEIGHTS_ROOT",
        option_readers.existing_folder,
        None,
        "DIR",
        "a Hugging Face cache: weights are reported, pulled and removed below it, and nowhere else",
    ),
    Option(
        "--machine-id",
        "LLMGW_AGENT_MACHINE_ID",
        option_readers.node_id,
        None,
        "ID",
        "instead of the machine's own id (several agents on one machine)",
    ),
    Option(
        "--tls-cert",
        "LLMGW_AGENT_TLS_CERT",
        option_readers.readable_file,
        None,
        "FILE",
        "serve HTTPS with this certificate chain (PEM)",
    ),
    Option("--tls-key", "LLMGW_AGENT_TLS_KEY", option_readers.readable_file, None, "FILE", "its key"),
    Option(
        "--tls-client-ca",
        "LLMGW_AGENT_TLS_CLIENT_CA",
        option_readers.readable_file,
        None,
        "FILE",
        "take only clients with a certificate of this authority",
    ),
    Option(
        "--weights-limit-percent",
        "LLMGW_AGENT_WEIGHTS_LIMIT_PERCENT",
        option_readers.percent,
        None,
        "PERCENT",
        "while the disk of --weights-root is fuller, pulled weights that nobody used for longest go; default: never",
    ),
    Option("--max-body-mib", "LLMGW_AGENT_MAX_BODY_MIB", option_readers.count, "8", "MIB", "largest request body"),
    Option(
        "--requests-per-s",
        "LLMGW_AGENT_REQUESTS_PER_S",
        option_readers.count,
        "100",
        "COUNT",
        "requests that one address may make a second; twice as many at once",
    ),
    Option(
        "--log-limit-mib",
        "LLMGW_AGENT_LOG_LIMIT_MIB",
        option_readers.count,
        "16",
        "MIB",
        "an engine's log is halved beyond it",
    ),
)
