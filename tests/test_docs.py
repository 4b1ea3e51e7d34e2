"""docs/processes.md and docs/metrics.md name every option, endpoint and metric of the processes: docs and code move
together."""

import re
from pathlib import Path

import pytest

from agent.settings import OPTIONS
from workers import flags

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "processes.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
SOURCES = ("workers/metrics.py", "workers/meters.py", "agent/metrics.py", "router/metrics.py")


def metrics_in(source: str) -> set[str]:
    """Metric names in a source file; names made by a loop count by what the loop runs over."""
    text = (ROOT / source).read_text()
    return {name for name in re.findall(r'"(llmgw_[a-z_]+)"', text) if not name.endswith("_")}


@pytest.mark.parametrize("source", SOURCES)
def test_every_metric_is_in_the_docs(source: str) -> None:
    found = metrics_in(source)
    page = METRICS if source.startswith("workers") else PAGE
    assert found
    missing = {name for name in found if f"`{name}`" not in page and f"`{name}_total`" not in page}
    assert missing == set()


def test_every_metric_in_the_docs_exists() -> None:
    told = set(re.findall(r"`(llmgw_[a-z_]+)`", PAGE + METRICS))
    known = {n for source in SOURCES for n in metrics_in(source)}
    known |= {f"{name}_total" for name in known}
    assert told - known == set()


def test_every_option_is_in_the_docs_with_its_variable() -> None:
    agent = {(option.flag, option.variable) for option in OPTIONS}
    worker = {(option.flag, option.variable) for option in flags.OPTIONS}
    router = (ROOT / "router" / "settings.py").read_text()
    variables = {(f"--{flag}", variable) for flag, variable in re.findall(r'"([a-z-]+)",\s*"(LLMGW_[A-Z_]+)"', router)}
    assert len(variables) == 13
    for flag, variable in agent | worker | variables:
        assert f"| `{flag}` | `{variable}` |" in PAGE, flag
    assert {flag for flag in flags.CONNECTION if f"| `{flag}` | " not in PAGE} == set()


@pytest.mark.parametrize("source", ["agent/app.py", "router/app.py", "workers/serving.py"])
def test_every_endpoint_is_in_the_docs(source: str) -> None:
    paths = set(re.findall(r'"(/(?:v1|healthz|readyz|metrics)[^" ]*)"', (ROOT / source).read_text()))
    assert paths
    plain = {re.sub(r"\{(\w+):[^}]*\}", r"{\1}", path).replace("{replica}", "{id}") for path in paths}
    missing = {path for path in plain if path not in PAGE}
    assert missing == set()
