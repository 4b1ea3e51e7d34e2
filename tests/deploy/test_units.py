"""The systemd units and Temporal's example profiles: systemd takes the former, Temporal's SDK the latter.

Not held: that the units start, which needs a machine that runs systemd.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from temporalio.envconfig import ClientConfig

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy").glob("*.service"))
PROGRAM = "/opt/llmgw/bin/llmgw"
MOST_EXPOSED = {"llmgw-agent.service": 6.0, "llmgw-router.service": 2.0, "llmgw-worker.service": 2.0}
"""Of `systemd-analyze security`, 0 (nothing) to 10; an agent's engines need the devices and the machine."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there: it comes with systemd"
)


def installed(unit: Path, folder: Path) -> Path:
    """The unit with a program that is there in place of ours, which is installed nowhere here."""
    path = folder / unit.name
    path.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    return path


def analyze(*args: str) -> str:
    done = subprocess.run(["systemd-analyze", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_there_is_a_unit_for_each_process() -> None:
    assert {unit.name for unit in UNITS} == set(MOST_EXPOSED)


def test_the_readme_installs_the_program_where_the_units_look_for_it() -> None:
    lines = re.findall(r"^gpu-01# (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert lines == [
        "python3 -m venv /opt/llmgw",
        "/opt/llmgw/bin/pip install --require-hashes -r requirements/run.txt",
        "/opt/llmgw/bin/pip install --no-deps .",
        f"ln -s {PROGRAM} /usr/local/bin/",
    ]
    locked = (ROOT / "requirements" / "run.txt").read_text()
    names = re.findall(r"^[a-z0-9][\w.\[\]-]*==", locked, re.MULTILINE)
    assert len(names) <= locked.count("--hash=sha256:")
    assert 'llmgw = "' in (ROOT / "pyproject.toml").read_text()


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_every_line_of_the_unit(unit: Path, tmp_path: Path) -> None:
    assert analyze("verify", str(installed(unit, tmp_path))) == ""


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_not_more_exposed_than_it_must_be(unit: Path, tmp_path: Path) -> None:
    said = analyze("security", "--offline=true", "--no-pager", str(installed(unit, tmp_path)))
    level = re.search(r"exposure level for \S+: ([0-9.]+)", said)
    assert level is not None
    assert float(level[1]) <= MOST_EXPOSED[unit.name]


def test_engines_outlive_their_agent_and_a_starved_engine_ends_alone() -> None:
    text = (ROOT / "deploy" / "llmgw-agent.service").read_text()
    assert "\nKillMode=process\n" in text
    assert "\nOOMPolicy=continue\n" in text


def test_tokens_are_credentials_and_stand_in_no_unit() -> None:
    for unit in UNITS:
        text = unit.read_text()
        assert "LoadCredential=tokens:/etc/llmgw/tokens" in text
        assert "LLMGW_TOKEN_FILE=%d/tokens" in text


# --- how Temporal is reached ---------------------------------------------------------------------------------------


def test_temporal_s_sdk_takes_the_profile_for_its_cloud() -> None:
    config = ClientConfig.load_client_connect_config(config_file=str(ROOT / "deploy" / "temporal" / "cloud.toml"))
    assert config.get("target_host") == "eu-central-1.aws.api.temporal.io:7233"
    assert config.get("namespace") == "fleets.a1b2c"


def test_temporal_s_sdk_takes_the_profile_with_client_certificates(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "temporal" / "mtls.toml").read_text()
    for name in ("temporal-ca.pem", "temporal.pem", "temporal.key"):
        (tmp_path / name).write_text(f"content of {name}")
    file = tmp_path / "temporal.toml"
    file.write_text(text.replace("/etc/llmgw/", f"{tmp_path}/"))
    config = ClientConfig.load_client_connect_config(config_file=str(file))
    tls = config.get("tls")
    assert config.get("target_host") == "temporal.internal:7233"
    assert getattr(tls, "domain", None) == "temporal.internal"
    assert getattr(tls, "client_cert", None) == b"content of temporal.pem"
    assert getattr(tls, "client_private_key", None) == b"content of temporal.key"
    assert getattr(tls, "server_root_ca_cert", None) == b"content of temporal-ca.pem"
