"""`rollbox bench`: its numbers, its plan, its report, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from rollbox import Client
from rollbox.bench.arrivals import Met
from rollbox.bench.kubectl import Kubectl
from rollbox.bench.measured import BenchReport, Measured, Series
from rollbox.bench.page import page
from rollbox.bench.plan import chosen, planned
from rollbox.bench.sample import Sample, Unfinished, Wrong, percentile
from rollbox.bench.scenarios import scenarios
from rollbox.bench.session import Wish, bench
from rollbox.bench.text import text
from rollbox.cli import app
from rollbox.errors import CapacityUnavailable, InvalidArgument, QuotaExceeded, SandboxLost
from rollbox.quota import Blocker, Preflight
from tests.support.gateway_fake import FakeGateway, Fault
from tests.support.screens import assert_screen
from tests.unit.sdk.test_report import Tags

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'&"


def met(*took_ms: float, answer: object = None) -> list[Met]:
    return [Met(ms, answer) for ms in took_ms]


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_quantiles_are_exact(values: list[float], share: float) -> None:
    assert Sample.of(met(*values)).quantile(share) == percentile(values, share)


def test_a_call_without_an_answer_is_longer_than_all_others_and_a_failed_one_is_in_no_quantile() -> None:
    sample = Sample.of([*met(*range(1, 99)), *met(1, 1, answer=Unfinished()), *met(5, answer=SandboxLost("gone"))])
    assert (sample.count, sample.unfinished, sample.failed) == (100, 2, {("sandbox_lost", "platform"): 1})
    assert (sample.quantile(0.98), sample.quantile(0.99), sample.max_ms) == (98, math.inf, math.inf)
    assert sample.tail().steps[-1] == (98, 0.98)
    assert sample.to_json()["quantiles_ms"] == {"p50": 50, "p90": 90, "p99": None, "p99.9": None, "max": None}


def test_a_quantile_is_one_from_as_many_calls_on_as_it_takes() -> None:
    few, many = Sample.of(met(*range(99))), Sample.of(met(*range(1000)))
    assert [few.resolves(share) for share in (0.5, 0.9, 0.99)] == [True, True, False]
    assert many.resolves(0.999)
    assert not Sample.of([]).resolves(0.5)
    assert math.isnan(Sample.of([]).max_ms)


def test_a_thousand_calls_are_some_hundred_points_that_end_with_the_longest() -> None:
    tail = Sample.of(met(*range(1, 6401))).tail()
    assert len(tail.steps) <= 401
    assert tail.steps[-1] == (6400, 1)


def test_what_was_named_has_to_fit_and_the_rest_is_left_out() -> None:
    known = scenarios(300)
    tight = Preflight(False, 300, 100, blockers=[Blocker("quota_exceeded", "you may have 100")])
    plan = planned(known, tight, named=False)
    assert set(plan.left_out) == {"create-burst-300", "create-poisson"}
    assert "you may have 100" in plan.text("bench-1", "python", 60)
    with pytest.raises(QuotaExceeded, match="you may have 100"):
        planned(chosen(known, ["create-burst-300"]), tight, named=True)
    with pytest.raises(CapacityUnavailable):
        planned(known, Preflight(False, 300, 0), named=False)


def test_shapes_are_cut_to_the_sandboxes_that_may_be() -> None:
    cut = scenarios(7)
    assert max(one.sandboxes for one in cut.values()) == 7
    assert cut["create-poisson"].says == "creates, Poisson, 45/s, 10 s, its first 7"
    with pytest.raises(InvalidArgument, match="'nope'"):
        chosen(cut, ["nope", "exec-1"])


class Told:
    def __init__(self) -> None:
        self.said: list[str] = []

    def begin(self, what: str, total: int) -> None:
        self.said.append(what)

    def step(self) -> None:
        self.said.append("")

    def say(self, text: str) -> None:
        self.said.append(text)


def left(fake: FakeGateway) -> int:
    return sum(box["state"] != "ended" for box in fake.sandboxes.values())


async def test_every_scenario_of_creates_measures_and_leaves_nothing(fake: FakeGateway) -> None:
    names = [name for name in scenarios(4) if name.startswith("create-")]
    async with Client() as client:
        report = await bench(client, Wish("python", {"cpu": "1"}, names, most=4), Told())
    assert [(one.name, one.series[0].sample.count) for one in report.scenarios] == [(name, 4) for name in names]
    assert all(one.series[0].sample.answers == {"cold": 4} for one in report.scenarios)
    assert (left(fake), report.left, report.fault) == (0, 0, "")
    assert {box["labels"]["rollbox.run"] for box in fake.sandboxes.values()} == {report.run}
    assert json.loads(json.dumps(report.to_json()))["scenarios"][0]["series"][0]["quantiles_ms"]["max"] > 0


class Acts(Told):
    """Does something once the calls of a scenario begin."""

    def __init__(self, at: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._at, self._act = at, act

    def begin(self, what: str, total: int) -> None:
        if what.startswith(self._at):
            self._act()


async def test_warm_and_cold_creates_have_distributions_of_their_own(fake: FakeGateway) -> None:
    real = fake.made

    async def made(body: dict[str, Any], key: str, call_id: str) -> web.Response:
        answer = await real(body, key, call_id)
        told = json.loads(answer.text or "")
        told["source"] = "warm" if len(fake.sandboxes) % 2 else "cold"
        return web.json_response(told, status=answer.status)

    fake.made = made  # type: ignore[method-assign]
    async with Client() as client:
        report = await bench(client, Wish("python", {}, ["create-burst-100"], most=4), Told())
    (measured,) = report.scenarios
    counts = [(one.name, one.sample.count, one.part) for one in measured.series]
    assert counts == [("create", 4, False), ("create, cold", 2, True), ("create, warm", 2, True)]
    assert measured.series[0].sample.answers == {"warm": 2, "cold": 2}
    assert "<b>4</b>calls" in page(report)


async def test_failures_are_counted_by_code_and_told_by_their_fault(fake: FakeGateway) -> None:
    told = Acts("creates", lambda: fake.fail("create", Fault("image_not_found")))
    async with Client() as client:
        report = await bench(client, Wish("python", {}, ["create-burst-100"], most=3), told)
    (series,) = report.scenarios[0].series
    assert (series.sample.failed, series.sample.count) == ({("image_not_found", "caller"): 1}, 2)
    assert (report.fault, left(fake)) == ("caller", 0)


async def test_a_scenario_that_breaks_costs_its_own_figures_only(fake: FakeGateway) -> None:
    told = Acts("sandboxes come up", lambda: fake.fail("create", Fault("image_not_found")))
    names = ["create-sequential", "exec-1"]
    async with Client() as client:
        report = await bench(client, Wish("python", {}, names, most=1), told)
    assert [bool(one.series) for one in report.scenarios] == [True, False]
    assert report.scenarios[1].missing.startswith("image_not_found: ")
    assert (report.fault, left(fake)) == ("caller", 0)


async def test_a_cancelled_benchmark_deletes_what_it_has_made(fake: FakeGateway) -> None:
    async with Client() as client:
        asking: asyncio.Task[BenchReport]
        told = Acts("exec, 32 at once", lambda: asking.cancel())  # noqa: PLW0108 - it is made below
        asking = asyncio.create_task(bench(client, Wish("python", {}, ["exec-32"]), told))
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert (len(fake.sandboxes), left(fake)) == (9, 0)


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})


def test_ctrl_c_deletes_too_and_is_told_by_the_exit_code(apart: FakeGateway, tmp_path: Path) -> None:
    written = tmp_path / "bench.html"
    code = "import sys; sys.argv[0] = 'rollbox'; from rollbox.cli import main; main()"
    command = [sys.executable, "-c", code, "bench", "python", "--scenario", "exec-1", "--html", str(written)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as measuring:
        assert measuring.stderr is not None
        assert any(line.startswith("exec, 1 at once") for line in measuring.stderr)
        measuring.send_signal(signal.SIGINT)
        said = measuring.stderr.read()
    assert (measuring.returncode, left(apart)) == (130, 0)
    assert not written.exists()
    assert said == "interrupted while measuring; what it has created is deleted\n"


def test_what_does_not_fit_or_is_not_known_is_refused_before_anything_is_created(apart: FakeGateway) -> None:
    blocker = {"code": "quota_exceeded", "detail": "300 sandboxes are wanted, your quota has 12"}
    apart.quotas.foresight = {"fits": False, "may_have": 12, "blockers": [blocker]}
    refused = {
        ("bench",): 2,
        ("bench", "python", "--scenario", "nope"): 2,
        ("bench", "python", "--html", "/nowhere/x.html"): 2,
        ("bench", "python", "--scenario", "create-burst-300"): 2,
    }
    shown = ""
    for arguments, code in refused.items():
        result = rollbox(*arguments)
        shown += f"$ rollbox {' '.join(arguments)}\n{result.stderr}-- exit code {result.exit_code}\n"
        assert (result.exit_code, result.stdout) == (code, "")
    assert_screen("bench_refused.txt", shown)
    assert not apart.sandboxes


def test_screen_of_the_list() -> None:
    assert_screen("bench_list.txt", rollbox("bench", "--list").stdout)
    told = json.loads(rollbox("bench", "--list", "--json").stdout)
    assert {one["scenario"] for one in told} == set(scenarios(300))


def test_a_report_is_printed_and_written(apart: FakeGateway, tmp_path: Path) -> None:
    written = tmp_path / "bench.html"
    shown = rollbox("bench", "python", "--scenario", "create-staggered", "--sandboxes", "2", "--html", str(written))
    assert (shown.exit_code, left(apart)) == (0, 0)
    assert "create-staggered" in shown.stdout
    assert "creates, staggered, 100 in 2 s, its first 2" in written.read_text()


def played(name: str = "python:3.12", code: str = "sandbox_lost") -> BenchReport:
    ours = Sample.of(met(*(1 + 0.01 * number for number in range(2000))))
    theirs = Sample.of(met(*(300 + number for number in range(30))))
    answered = [*met(*(400 + 5 * number for number in range(97))), *met(60_000, 60_000, answer=Unfinished())]
    burst = Sample.of([*answered, Met(9, Wrong(code), 3.0)], ["warm"] * 20 + ["cold"] * 77)
    moved = Sample.of(met(410, 400, 430, 405, 2000))
    return BenchReport(
        run="bench-0a1b2c3d",
        began_at_ms=1_800_000_000_000,
        took_s=312.5,
        platform={"version": "0.1.0", "backend": "kubernetes", "isolation": "gvisor"},
        client={"rollbox": "0.1.0", "machine": "a processor, 8 cores, 32000 MiB"},
        conditions={"image": name, "first sandbox, with its pull": "4.2 s"},
        repeat=f"rollbox bench '{name}'",
        scenarios=(
            Measured(
                "create-burst-100",
                "creates, a burst of 100",
                (Series("create", burst, "until a command can run, from when each was due", 100),),
            ),
            Measured(
                "exec-1",
                "exec of true, 1 at once in 8 sandboxes",
                (Series("exec", ours, "closed loop", 2000), Series("kubectl exec", theirs, "closed loop", 30)),
            ),
            Measured("output", "output of a command", (Series("output", moved, "200 MB each", 5, 200.0),)),
            Measured("files", "a file up and down", missing="sandbox_lost: it is gone", fault="platform"),
            Measured("create-burst-300", "creates, a burst of 300", missing="it needs 300 sandboxes, 100 may run now"),
        ),
    )


def test_screen_of_a_report() -> None:
    assert_screen("bench.txt", text(played()))


def test_screen_of_the_page_of_a_report() -> None:
    assert_screen("bench.html", page(played()))


def test_hostile_names_are_harmless_in_text_and_page() -> None:
    report = played(HOSTILE, HOSTILE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text(report))
    tags = Tags()
    tags.feed(page(report))
    assert not tags.open
    assert "script" not in tags.seen
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "href")}
    assert "default-src 'none'" in page(report)


def test_the_worst_fault_decides() -> None:
    assert played().fault == "platform"
    failed = Series("create", Sample.of(met(1, answer=CapacityUnavailable("no"))))
    report = BenchReport("r", 0, 1, {}, {}, {}, "", (Measured("a", "b", (failed,)),))
    assert report.fault == "capacity"
    assert BenchReport("r", 0, 1, {}, {}, {}, "", (), left=1).fault == "platform"


@pytest.mark.parametrize(("answered", "fault"), [((), "platform"), ((2.0,), "")])
def test_calls_without_any_answer_are_a_failure_and_those_that_the_end_cuts_off_are_none(
    answered: tuple[float, ...], fault: str
) -> None:
    series = Series("exec", Sample(answered, unfinished=32))
    report = BenchReport("r", 0, 1, {}, {}, {}, "", (Measured("a", "b", (series,)),))
    assert report.fault == fault


NO_PODS = """#!/bin/sh
echo '{"items": []}'
"""
KUBECTL = """#!/bin/sh
case "$1" in
get) case "$2" in
  pods) echo '{"items": [{"metadata": {"namespace": "boxes"}}]}' ;;
  *) echo '{"items": [{"status": {"nodeInfo": {"containerRuntimeVersion": "cri", "kernelVersion": "6"}}}]}' ;;
  esac ;;
version) echo '{"clientVersion": {"gitVersion": "v1"}, "serverVersion": {"gitVersion": "v2"}}' ;;
exec) [ "$KUBECONFIG $2 $3" = "cluster.yaml --namespace boxes" ] ;;
esac
"""


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name."""
    program = tmp_path / "kubectl"
    program.write_text(request.param)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


@pytest.mark.parametrize("kubectl", [KUBECTL], indirect=True)
async def test_commands_are_compared_with_kubectl_exec(fake: FakeGateway, kubectl: Path) -> None:
    compare = Kubectl(Path("cluster.yaml"))
    async with Client() as client:
        report = await bench(client, Wish("python", {}, ["exec-1"], most=1, seconds=20, kubectl=compare), Told())
    (measured,) = report.scenarios
    assert [(one.name, one.sample.failed) for one in measured.series] == [("exec", {}), ("kubectl exec", {})]
    assert measured.series[1].sample.count == 30
    assert (report.platform["kubernetes"], report.platform["nodes"]) == ("v2", "cri, kernel 6")
    assert "as long at p50" in text(report)


@pytest.mark.parametrize("kubectl", [NO_PODS], indirect=True)
async def test_without_pods_there_is_no_baseline_and_the_report_says_why(fake: FakeGateway, kubectl: Path) -> None:
    async with Client() as client:
        wish = Wish("python", {}, ["exec-1"], most=1, seconds=1, kubectl=Kubectl(None))
        report = await bench(client, wish, Told())
    (measured,) = report.scenarios
    assert [one.name for one in measured.series] == ["exec"]
    assert measured.missing == "no kubectl exec: the cluster of this kubeconfig has no pod sb-1"
