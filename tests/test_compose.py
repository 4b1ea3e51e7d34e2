"""docker-compose.yml and what it starts from, checked as far as a machine without Docker allows.

Held: the files against the compose-spec's own schema; every path, name, port and `llmgw` command they mention against
what is there; the namespace script against a real Temporal server. Not held: that the images start.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import typer
import yaml
from pydantic import BaseModel, Field
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.testing import WorkflowEnvironment

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
COMPOSE_FILES = [ROOT / "docker-compose.yml", ROOT / "deploy/compose.gpu.yml"]
UNITS = sorted((ROOT / "deploy").glob("*.service"))
SCRIPTS = sorted((ROOT / "deploy/temporal").glob("*.sh"))
PRODUCT = ["activities", "workflows", "workers", "agent", "router", "cli"]
NOT_YET = "the command line is not in this checkout yet"


class DependsOn(BaseModel):
    condition: Literal["service_healthy", "service_completed_successfully"]


class Healthcheck(BaseModel):
    test: list[str]


class Service(BaseModel):
    """The part of a service that names something elsewhere."""

    image: str
    build: str | None = None
    command: list[str] = []
    entrypoint: list[str] = []
    restart: str = "no"
    environment: dict[str, str] = {}
    volumes: list[str] = []
    secrets: list[str] = []
    depends_on: dict[str, DependsOn] = {}
    healthcheck: Healthcheck | None = None


class Compose(BaseModel):
    services: dict[str, Service]
    secrets: dict[str, dict[str, str]]
    volumes: dict[str, None]

    def ours(self) -> dict[str, Service]:
        return {name: service for name, service in self.services.items() if service.build}


class StaticTargets(BaseModel):
    targets: list[str]


class DnsTargets(BaseModel):
    names: list[str]
    port: int


class Job(BaseModel):
    job_name: str
    static_configs: list[StaticTargets] = []
    dns_sd_configs: list[DnsTargets] = []


class Prometheus(BaseModel):
    scrape_configs: list[Job] = Field(min_length=1)


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(yaml.safe_load(COMPOSE_FILES[0].read_text()))


def split_volume(volume: str) -> tuple[str, str]:
    source, target, *_mode = volume.split(":")
    return source, target


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_the_file_holds_against_the_compose_schema(path: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    verdict = subprocess.run(check, capture_output=True, text=True, check=False)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_every_file_that_a_service_mounts_or_is_built_from_exists(compose: Compose) -> None:
    mounted = [split_volume(volume)[0] for service in compose.services.values() for volume in service.volumes]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        for source in line.split()[:-1]
    ]
    sent = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    paths = [source for source in mounted if source.startswith(".")] + copied + sent
    assert len(paths) > len(sent) > 0
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_image_gets_every_folder_of_the_wheel() -> None:
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    wheel = re.search(r"^packages = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert wheel is not None
    assert [folder for folder in re.findall(r'"(\w+)"', wheel[1]) if f"!{folder}" not in sent] == []


def test_a_script_that_a_container_runs_is_mounted_where_it_looks(compose: Compose) -> None:
    runs = {name: service for name, service in compose.services.items() if service.entrypoint}
    assert runs
    for name, service in runs.items():
        assert service.entrypoint[-1] in [split_volume(volume)[1] for volume in service.volumes], name


def test_volumes_and_secrets_are_declared_and_used(compose: Compose) -> None:
    sources = {split_volume(volume)[0] for service in compose.services.values() for volume in service.volumes}
    assert {source for source in sources if not source.startswith(".")} == compose.volumes.keys()
    assert {secret for service in compose.services.values() for secret in service.secrets} == compose.secrets.keys()


def test_what_a_service_waits_for_can_come_true(compose: Compose) -> None:
    for name, service in compose.services.items():
        for other, wait in service.depends_on.items():
            awaited = compose.services[other]
            if wait.condition == "service_healthy":
                assert awaited.healthcheck is not None, f"{name} waits for {other}, which has no health check"
            else:
                assert awaited.restart == "no", f"{name} waits for {other} to end, which restarts"


def test_every_variable_the_file_asks_of_the_operator_is_in_the_example() -> None:
    text = COMPOSE_FILES[0].read_text()
    asked = set(re.findall(r"\$\{(\w+)", text)) | set(re.findall(r"^    environment: (\w+)$", text, re.MULTILINE))
    offered = set(re.findall(r"^(\w+)=", (ROOT / "deploy/example.env").read_text(), re.MULTILINE))
    assert asked == offered


def test_a_health_check_asks_the_port_that_its_service_listens_on(compose: Compose) -> None:
    for name, service in compose.ours().items():
        assert service.healthcheck is not None, name
        asked = re.search(r"localhost:(\d+)/", service.healthcheck.test[-1])
        assert asked is not None, name
        assert int(asked[1]) in listening_ports(service), name


def test_prometheus_scrapes_ports_that_services_listen_on(compose: Compose) -> None:
    config = Prometheus.model_validate(yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text()))
    scraped = {
        (target.split(":")[0], int(target.split(":")[1]))
        for job in config.scrape_configs
        for listed in job.static_configs
        for target in listed.targets
    } | {(name, dns.port) for job in config.scrape_configs for dns in job.dns_sd_configs for name in dns.names}
    assert compose.ours().keys() <= {host for host, _ in scraped}
    assert [(host, port) for host, port in scraped if port not in listening_ports(compose.services[host])] == []


def listening_ports(service: Service) -> set[int]:
    names = ["LLMGW_ROUTER_LISTEN", "LLMGW_AGENT_LISTEN", "LLMGW_METRICS_LISTEN", "PROMETHEUS_ENDPOINT"]
    return {int(service.environment[name].rsplit(":", 1)[1]) for name in names if name in service.environment}


def test_every_service_means_the_same_namespace_and_the_same_server(compose: Compose) -> None:
    environments = [service.environment for service in compose.services.values()]
    names = ["TEMPORAL_NAMESPACE", "TEMPORAL_DEFAULT_NAMESPACE"]
    assert len({env[name] for env in environments for name in names if name in env}) == 1
    assert {env["TEMPORAL_ADDRESS"] for env in environments if "TEMPORAL_ADDRESS" in env} == {"temporal:7233"}


def test_images_are_pinned_and_the_server_and_its_tools_are_of_one_release(compose: Compose) -> None:
    tags = dict(service.image.split(":") for service in compose.services.values())
    assert "latest" not in tags.values()
    assert tags["temporalio/server"] == tags["temporalio/admin-tools"]


def started_by_the_files() -> list[list[str]]:
    """The arguments that compose, its header's instructions and the node's unit give to `llmgw`."""
    text = COMPOSE_FILES[0].read_text()
    services = Compose.model_validate(yaml.safe_load(text)).ours().values()
    told = re.findall(r"^#   docker compose run --rm worker (.+?)(?:  #.*)?$", text, re.MULTILINE)
    unit = [
        line for path in UNITS for line in re.findall(r"^ExecStart=\S+/llmgw (.+)$", path.read_text(), re.MULTILINE)
    ]
    assert told
    assert len(unit) == len(UNITS)
    return [service.command for service in services] + [shlex.split(line) for line in [*told, *unit]]


@pytest.mark.parametrize("argv", started_by_the_files(), ids=" ".join)
def test_llmgw_takes_the_arguments_that_the_files_give_it(
    argv: list[str], compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = typer.main.get_command(pytest.importorskip("cli.main", reason=NOT_YET).app)
    settings = compose.ours().get(argv[0], compose.services["worker"]).environment
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    path, arguments = "llmgw", argv
    while known := getattr(command, "commands", None):
        assert set(arguments[:1]) & set(known), f"{path} is given {arguments}, and knows {sorted(known)}"
        command, path, arguments = known[arguments[0]], f"{path} {arguments[0]}", arguments[1:]
    # Parses and runs nothing: an unknown flag or a missing argument is a usage error here.
    command.make_context(path, arguments)


def test_the_product_reads_every_setting_that_the_files_give_it(compose: Compose) -> None:
    pytest.importorskip("cli.main", reason=NOT_YET)
    source = "\n".join(path.read_text() for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    given = {name for service in compose.ours().values() for name in service.environment if name.startswith("LLMGW_")}
    given |= {name for path in UNITS for name in re.findall(r"LLMGW_\w+", path.read_text())}
    assert {name for name in given if name not in source} == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_plain_shell_can_read_the_script(script: Path) -> None:
    verdict = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (verdict.returncode, verdict.stderr) == (0, "")


@pytest.mark.real
async def test_the_namespace_script_prepares_a_real_server_and_may_run_again() -> None:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(BIN / "temporal"), dev_server_log_level="error"
    ) as server:
        service = server.client.service_client
        for _ in range(2):
            log = await run_namespace_script(service.config.target_host)
        found = await service.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="fleets"))
        namespace = await service.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="fleets"))

    assert found.custom_attributes == {
        "FleetPhase": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        "FleetGeneration": IndexedValueType.INDEXED_VALUE_TYPE_INT,
        "FleetRejected": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    }, log
    assert namespace.config.workflow_execution_retention_ttl.ToTimedelta().days == 7


async def run_namespace_script(address: str) -> str:
    environment = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": "fleets",
    }
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(ROOT / "deploy/temporal/namespace.sh"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
