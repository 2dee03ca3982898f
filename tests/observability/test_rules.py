"""The alerting rules by themselves: promtool runs each against series that fire it and series that do not."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.observability.firing.faults import FAULTS
from tests.observability.firing.hasty import hasty, shorter
from tests.observability.rule_cases import CASES, WELL, Case
from tests.observability.table import known_names, named
from tests.support.installed import ROOT
from tests.support.prometheus import why_no_prometheus

RULES: Final = ROOT / "helm/files/rules.yaml"
GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: Final = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDS: Final = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
RUNBOOKS: Final = ROOT / "docs/runbooks"
# Of the cluster, not of rollbox.
FOREIGN: Final = {"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}

pytestmark = pytest.mark.skipif(why_no_prometheus() is not None, reason=why_no_prometheus() or "")


async def promtool(*words: str | Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "promtool", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


def series_of(case: Case, *, fires: bool, alert: str) -> list[dict[str, str]]:
    chosen = case.fires if fires else case.rests
    base = {} if alert == "RollboxMetricsAbsent" else WELL
    return [{"series": name, "values": values} for name, values in {**base, **chosen}.items()]


def scenario(alert: str, case: Case, *, fires: bool) -> dict[str, Any]:
    """That this alert fires after an hour and a quarter, or not, and no other one does."""
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else []
    return {
        "name": f"{alert} {'fires' if fires else 'rests'}",
        "interval": "1m",
        "input_series": series_of(case, fires=fires, alert=alert),
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (count by (alertname) (ALERTS{alertstate="firing"}))',
                "eval_time": "60m",
                "exp_samples": expected,
            }
        ],
    }


async def test_promtool_takes_the_rules() -> None:
    status, said = await promtool("check", "rules", RULES)
    assert status == 0, said


async def test_promtool_takes_the_rules_that_are_hasty_for_faults_too(tmp_path: Path) -> None:
    file = tmp_path / "hasty.yaml"
    file.write_text(yaml.safe_dump(dict(hasty(yaml.safe_load(RULES.read_text())))))
    status, said = await promtool("check", "rules", file)
    assert status == 0, said
    assert {alert for fault in FAULTS.values() for alert in fault.alerts} <= ALERTS.keys()


def test_hasty_rules_differ_from_the_rules_in_durations_alone() -> None:
    quick = hasty(yaml.safe_load(RULES.read_text()))["groups"]
    durations = re.compile(r"\[\d+[smh]\]")
    for before, after in zip(GROUPS, quick, strict=True):
        for rule, other in zip(before["rules"], after["rules"], strict=True):
            bare, quicker = durations.sub("[]", rule["expr"]), durations.sub("[]", other["expr"])
            if rule.get("alert") == "RollboxSandboxesStuck":
                bare = bare.replace("1800", "60").replace("600", "20")
            assert quicker == bare
    assert [shorter(one) for one in ("1m", "15m", "1h")] == ["2s", "30s", "120s"]
    with pytest.raises(ValueError, match="no whole number"):
        shorter("10s")


async def test_each_alert_fires_on_its_series_alone_and_rests_on_others(tmp_path: Path) -> None:
    tests = [scenario(alert, case, fires=fires) for alert, case in CASES.items() for fires in (True, False)]
    file = tmp_path / "rules.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    status, said = await promtool("test", "rules", file)
    assert status == 0, said


def test_each_alert_has_a_case_and_a_runbook_and_each_runbook_an_alert() -> None:
    assert CASES.keys() == ALERTS.keys()
    # The others are for what no alert tells.
    assert {page.stem for page in RUNBOOKS.glob("Rollbox*.md")} == ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert rule["labels"]["severity"] in {"warning", "critical"}
        page = (RUNBOOKS / f"{name}.md").read_text()
        assert page.startswith(f"# {name}\n")
        for part in ("**What it means.**", "**Whose fault.**", "**What to do.**"):
            assert part in page
        for link in re.findall(r"\]\(([^)#]+)", page):
            assert (RUNBOOKS / link).exists(), (name, link)


def test_rules_name_only_metrics_of_the_table() -> None:
    used = {name for group in GROUPS for rule in group["rules"] for name in named(rule["expr"])}
    assert used - FOREIGN - RECORDS <= known_names()
