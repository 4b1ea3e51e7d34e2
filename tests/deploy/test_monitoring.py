"""Alert rules and the dashboard: they load and evaluate, fire when they should, and name only metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "llmgw.json").read_text())
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
METRIC = re.compile(r"\bllmgw_[a-z_]+")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not there: it comes with Debian's prometheus"
)


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Every query of the dashboard, with its variables put in."""
    found = {f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]}
    found |= {note["name"]: note["expr"] for note in DASHBOARD["annotations"]["list"]}
    return {
        name: re.sub(r"\$__rate_interval", "5m", re.sub(r"\$(fleet|model)\b", ".*", e)) for name, e in found.items()
    }


def promtool(*args: str, cwd: Path) -> None:
    done = subprocess.run(["promtool", *args], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- names ---------------------------------------------------------------------------------------------------------


def in_the_docs() -> set[str]:
    pages = [ROOT / "docs" / "metrics.md", ROOT / "docs" / "processes.md"]
    told = {name for page in pages if page.exists() for name in METRIC.findall(page.read_text())}
    return told | {f"{name}_{suffix}" for name in told for suffix in ("bucket", "sum", "count")}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_metrics_that_are_in_the_docs(alert: str) -> None:
    expression = ALERTS[alert]["expr"]
    named = set(METRIC.findall(expression))
    assert named or "up{" in expression
    assert named - in_the_docs() == set()


def test_the_dashboard_names_metrics_that_are_in_the_docs() -> None:
    named = {name for expression in expressions().values() for name in METRIC.findall(expression)}
    named |= {name for v in DASHBOARD["templating"]["list"] for name in METRIC.findall(json.dumps(v["query"]))}
    assert len(named) > 20
    assert named - in_the_docs() == set()


# --- that they load ------------------------------------------------------------------------------------------------


@needs_promtool
def test_prometheus_loads_its_configuration_and_the_rules(tmp_path: Path) -> None:
    """The configuration as it is, but for the secret's file, which only a container has."""
    text = (RULES.parent / "prometheus.yml").read_text()
    (tmp_path / "token").write_text("x")
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/tokens", str(tmp_path / "token")))
    shutil.copy(RULES, tmp_path)
    promtool("check", "config", "prometheus.yml", cwd=tmp_path)


@needs_promtool
def test_every_query_of_the_dashboard_is_one(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(expressions().values())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "queries.yml", cwd=tmp_path)


def test_the_dashboard_s_panels_are_told_apart_and_lie_side_by_side() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(panel["title"] and panel["targets"] for panel in panels())


# --- that they fire ------------------------------------------------------------------------------------------------

HEALTHY = {
    'llmgw_worker_acting{fleet="f",instance="a"}': "1x120",
    'llmgw_worker_acting{fleet="f",instance="b"}': "0x120",
    'llmgw_fleet_answers{fleet="f"}': "1x120",
    'llmgw_fleet_phase{fleet="f",phase="steady"}': "1x120",
    'llmgw_fleet_phase{fleet="f",phase="safe_mode"}': "0x120",
    'llmgw_fleet_phase{fleet="f",phase="held"}': "0x120",
    'llmgw_fleet_phase{fleet="f",phase="fenced"}': "0x120",
    'llmgw_fleet_phase{fleet="f",phase="paused"}': "0x120",
    'llmgw_fleet_nodes{fleet="f",state="lost"}': "0x120",
    'llmgw_fleet_nodes{fleet="f",state="set_aside"}': "0x120",
    'llmgw_fleet_devices{fleet="f",state="bad"}': "0x120",
    'llmgw_fleet_waiting_longest_seconds{fleet="f"}': "0+30x120",
    'llmgw_model_replicas_wanted{fleet="f",model="m"}': "2x120",
    'llmgw_model_replicas_ready{fleet="f",model="m"}': "2x120",
    'llmgw_model_failures{fleet="f",model="m"}': "0x120",
    'llmgw_inputs_total{fleet="f",kind="catalog",judgement="refused"}': "1x120",
    'llmgw_workflow_history_bytes{fleet="f"}': "100000x120",
    'llmgw_fleet_waiting_reasons{fleet="f",reason="wake_overdue"}': "0x120",
    'llmgw_router_current{fleet="f",router="r"}': "1x120",
    'llmgw_router_requests_total{model="m",fleet="f",endpoint="e",code="200"}': "0+600x120",
    'llmgw_router_requests_total{model="m",fleet="f",endpoint="e",code="500"}': "0+1x120",
    'llmgw_router_misses_total{model="",cause="unknown_model"}': "0+1x120",
    'llmgw_router_aborts_total{model="m",fleet="f",endpoint="e"}': "3x120",
    'llmgw_router_first_byte_seconds_bucket{model="m",le="1.0"}': "0+600x120",
    'llmgw_router_first_byte_seconds_bucket{model="m",le="60.0"}': "0+600x120",
    'llmgw_router_first_byte_seconds_bucket{model="m",le="+Inf"}': "0+600x120",
    'llmgw_plan_duration_seconds_bucket{fleet="f",le="0.1"}': "0+60x120",
    'llmgw_plan_duration_seconds_bucket{fleet="f",le="5.0"}': "0+60x120",
    'llmgw_plan_duration_seconds_bucket{fleet="f",le="+Inf"}': "0+60x120",
    'llmgw_agent_inventory_complete{instance="n"}': "1x120",
    'llmgw_agent_problems{instance="n"}': "0x120",
    'llmgw_agent_bugs_total{instance="n"}': "2x120",
    'up{job="agent",instance="n"}': "1x120",
    'up{job="router",instance="r"}': "1x120",
}
"""A minute between samples. Nothing may fire on these within 65 minutes."""

SICK: dict[str, dict[str, str]] = {
    "LlmgwNoWorkerActs": {'llmgw_worker_acting{fleet="f",instance="a"}': "0x120"},
    "LlmgwTwoWorkersAct": {'llmgw_worker_acting{fleet="f",instance="b"}': "1x120"},
    "LlmgwFleetDoesNotAnswer": {'llmgw_fleet_answers{fleet="f"}': "0x120"},
    "LlmgwSafeMode": {'llmgw_fleet_phase{fleet="f",phase="safe_mode"}': "1x120"},
    "LlmgwOthersCommand": {'llmgw_fleet_phase{fleet="f",phase="fenced"}': "1x120"},
    "LlmgwFleetHeld": {'llmgw_fleet_phase{fleet="f",phase="held"}': "1x120"},
    "LlmgwPausedLong": {'llmgw_fleet_phase{fleet="f",phase="paused"}': "1x120"},
    "LlmgwInputRefused": {'llmgw_inputs_total{fleet="f",kind="catalog",judgement="refused"}': "1x60 2x60"},
    "LlmgwPlansAreSlow": {'llmgw_plan_duration_seconds_bucket{fleet="f",le="0.1"}': "0x120"},
    "LlmgwHistoryGrowsLarge": {'llmgw_workflow_history_bytes{fleet="f"}': "25000000x120"},
    "LlmgwNodeLost": {'llmgw_fleet_nodes{fleet="f",state="lost"}': "2x120"},
    "LlmgwNodeSetAside": {'llmgw_fleet_nodes{fleet="f",state="set_aside"}': "1x120"},
    "LlmgwModelWithoutReplica": {'llmgw_model_replicas_ready{fleet="f",model="m"}': "0x120"},
    "LlmgwModelShort": {'llmgw_model_replicas_ready{fleet="f",model="m"}': "1x120"},
    "LlmgwModelKeepsFailing": {'llmgw_model_failures{fleet="f",model="m"}': "4x120"},
    "LlmgwWakeOverdue": {'llmgw_fleet_waiting_reasons{fleet="f",reason="wake_overdue"}': "1x120"},
    "LlmgwDeviceOut": {'llmgw_fleet_devices{fleet="f",state="bad"}': "1x120"},
    "LlmgwWaitsLong": {'llmgw_fleet_waiting_longest_seconds{fleet="f"}': "3600+60x120"},
    "LlmgwAgentDown": {'up{job="agent",instance="n"}': "0x120"},
    "LlmgwDeviceToolsFail": {'llmgw_agent_inventory_complete{instance="n"}': "0x120"},
    "LlmgwAgentProblem": {'llmgw_agent_problems{instance="n"}': "1x120"},
    "LlmgwAgentBug": {'llmgw_agent_bugs_total{instance="n"}': "2x60 3x60"},
    "LlmgwRouterDown": {'up{job="router",instance="r"}': "0x120"},
    "LlmgwRouterBehind": {'llmgw_router_current{fleet="f",router="r"}': "0x120"},
    "LlmgwRequestsFail": {'llmgw_router_requests_total{model="m",fleet="f",endpoint="e",code="500"}': "0+60x120"},
    "LlmgwRequestsMiss": {'llmgw_router_misses_total{model="",cause="unknown_model"}': "0+120x120"},
    "LlmgwAnswersBreakOff": {'llmgw_router_aborts_total{model="m",fleet="f",endpoint="e"}': "3+2x120"},
    "LlmgwSlowFirstByte": {'llmgw_router_first_byte_seconds_bucket{model="m",le="1.0"}': "0x120"},
}
"""What differs from the healthy fleet when the alert should fire: it alone, 65 minutes later."""


def test_every_alert_is_tried() -> None:
    assert set(SICK) == set(ALERTS)
    assert all(series in HEALTHY for differing in SICK.values() for series in differing)


@needs_promtool
def test_an_alert_fires_on_its_own_sickness_alone_and_none_on_health(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    tests = [_trial("", {}), *(_trial(alert, differing) for alert, differing in SICK.items())]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}))
    promtool("test", "rules", "tests.yml", cwd=tmp_path)


def _trial(alert: str, differing: dict[str, str]) -> dict[str, Any]:
    series = [{"series": name, "values": values} for name, values in {**HEALTHY, **differing}.items()]
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    query = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "65m",
        "exp_samples": fires,
    }
    return {"name": alert or "healthy", "interval": "1m", "input_series": series, "promql_expr_test": [query]}


# --- what to do ----------------------------------------------------------------------------------------------------


def test_every_alert_has_a_section_on_what_to_do_and_no_section_is_without_its_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert set(re.findall(r"^### (Llmgw\w+)$", page, re.MULTILINE)) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_how_urgent_it_is_and_what_is_the_matter(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
