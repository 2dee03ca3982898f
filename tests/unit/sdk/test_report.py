"""The report of a run: its screens, harmless whatever names hold, and the one that is made of records."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from rollbox import SandboxRecord
from rollbox.cli import app
from rollbox.errors import NodeLost
from rollbox.record import End
from rollbox.recording.recorder import Recorder
from rollbox.report.of_records import of_records
from rollbox.report.run_report import RunReport
from tests.support.gateway_fake import FakeGateway
from tests.support.screens import assert_screen

BEGAN_MS = 1_800_000_000_000
HOSTILE = "\x1b]0;owned\x07<script>alert(1)</script>'\"\u202e"


class Time:
    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> float:
        return self.s

    def passed(self, seconds: float) -> None:
        self.s += seconds


def record(sandbox_id: str, **told: Any) -> SandboxRecord:
    return SandboxRecord(sandbox_id, told.pop("state", "running"), told.pop("image", "python"), **told)


def played(name: str = "r1", image: str = "python:3.12") -> RunReport:
    """A small run: two warm creates, one cold, one that fails, four commands, a node that is lost."""
    time = Time()
    run = Recorder(name, time.now, lambda: BEGAN_MS + 1000 * time.s)
    for number, took_s in enumerate((0.02, 0.03, 2.5)):
        with run.creating({"image": image}) as create:
            time.passed(took_s)
            timings = {"queue": 100, "start": 200, "ready_push": 2100, "boot": 300, "total": 2400}
            source = "cold" if number == 2 else "warm"
            create.made(
                record(f"sb-{number}", source=source, timings_ms=timings, cold_reason="none_ready" * (number == 2))
            )
    with suppress(NodeLost), run.creating({"image": image}):
        time.passed(1.0)
        raise NodeLost("the node is gone", sandbox_id="sb-9")
    for sandbox_id, run_s in (("sb-0", 1.0), ("sb-1", 2.0), ("sb-2", 4.0)):
        with run.executing(sandbox_id) as answered:
            time.passed(run_s)
            answered(
                {"end": "exited", "exit_code": int(run_s == 2), "queue_ms": 1, "spawn_ms": 2, "run_ms": run_s * 990}
            )
        time.passed(0.5)
    run.deleted("sb-0", End("deleted", "caller", "d", 0, "o"))
    run.deleted("sb-1", End("node_lost", "platform", "d", 0, "o"))
    run.rolled_out("finished", 2)
    time.passed(1.0)
    run.end()
    return RunReport.of(run)


def test_screen_of_a_report() -> None:
    assert_screen("report.txt", played().text())


def test_screen_of_the_page_of_a_report() -> None:
    assert_screen("report.html", played().html())


def test_the_parts_of_the_wall_time_add_up_to_it() -> None:
    report = played()
    assert sum(report.spent_s.values()) == pytest.approx(report.wall_s)
    assert report.wall_s == pytest.approx(13.05)


def test_numbers_are_plain_and_the_same_names_whatever_happened() -> None:
    numbers = played().numbers()
    assert all(type(value) in (int, float) for value in numbers.values())
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in numbers)
    assert (numbers["creates_warm"], numbers["creates_failed"], numbers["samples_masked"]) == (2, 1, 2)
    assert json.loads(json.dumps(played().to_json()))["wall_s"] == pytest.approx(13.05)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "rect", "line", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line", "polyline"):
            assert self.open.pop() == tag


def test_hostile_names_are_harmless_in_text_and_page() -> None:
    report = played(HOSTILE, HOSTILE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", report.text())
    tags = Tags()
    tags.feed(report.html())
    assert not tags.open
    assert "script" not in tags.seen
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "href")}
    assert "http://" not in report.html().replace("http-equiv", "")
    assert "default-src 'none'" in report.html()


@st.composite
def records_of_a_run(draw: st.DrawFn) -> list[SandboxRecord]:
    found = []
    for number in range(draw(st.integers(1, 12))):
        created, took = BEGAN_MS + draw(st.integers(0, 10**6)), draw(st.integers(0, 10**5))
        ready = draw(st.sampled_from((None, created + took)))
        ended = draw(st.sampled_from((None, created + took + draw(st.integers(0, 10**6)))))
        source = "warm" if ready and draw(st.booleans()) else "cold"
        end = None if ended is None else End("deleted", "caller", "d", ended, "o")
        told = {"queue": draw(st.integers(0, 10**5)), "ready_push": draw(st.integers(0, 10**5)), "boot": 5}
        claimed = ready if source == "warm" else None
        found.append(
            record(
                f"sb-{number}",
                created_at_ms=created,
                ready_at_ms=ready,
                claimed_at_ms=claimed,
                end=end,
                source=source,
                timings_ms=told,
            )
        )
    return found


@given(records_of_a_run())
def test_a_report_of_records_adds_up_to_the_wall_time(records: list[SandboxRecord]) -> None:
    report = of_records("r", records, BEGAN_MS + 5 * 10**6)
    assert sum(report.spent_s.values()) == pytest.approx(report.wall_s, rel=1e-6, abs=1e-6)
    assert sum(report.creates.values()) == len(records)
    assert report.text()
    assert report.html()


def test_what_came_before_the_claim_of_a_warm_sandbox_is_not_of_the_run() -> None:
    told = {"created_at_ms": BEGAN_MS - 10**7, "ready_at_ms": BEGAN_MS - 10**7 + 4000, "claimed_at_ms": BEGAN_MS}
    end = End("deleted", "caller", "d", BEGAN_MS + 3000, "o")
    report = of_records("r", [record("sb", source="warm", end=end, **told)], BEGAN_MS + 9000)
    assert (report.wall_s, report.spent_s) == (3, {"running": 3.0})


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_why_of_a_run(apart: FakeGateway, tmp_path: Path) -> None:
    for number, (created, ready, ended) in enumerate(((0, 2000, 10_000), (500, 3000, 9000), (1000, None, 4000))):
        rollbox("create", "python", "--label", "rollbox.run=r1")
        cause = "capacity_unavailable" if ready is None else "deleted"
        apart.end(f"sb-{number + 1}", cause)
        box = apart.sandboxes[f"sb-{number + 1}"]
        box |= {"created_at_ms": BEGAN_MS + created, "ready_at_ms": ready and BEGAN_MS + ready, "source": "cold"}
        box["end"]["at_ms"] = BEGAN_MS + ended
        box["timings_ms"] = {"queue": 400, "start": 100, "ready_push": 1400, "boot": 300, "total": 1990}
    page = tmp_path / "run.html"
    shown = rollbox("why", "--run", "r1", "--html", str(page))
    assert (shown.exit_code, shown.stderr) == (0, f"written: {page}\n")
    assert_screen("why_run.txt", shown.stdout)
    assert "run r1" in page.read_text()
    told = json.loads(rollbox("why", "--run", "r1", "--json").stdout)
    assert told["wall_s"] == 10
    assert sum(told["spent_s"].values()) == pytest.approx(10)


@pytest.mark.parametrize("arguments", [(), ("sb-1", "--run", "r"), ("sb-1", "--html", "x"), ("--run", "none")])
def test_why_of_nothing_or_of_an_unknown_run_is_refused(apart: FakeGateway, arguments: tuple[str, ...]) -> None:
    refused = rollbox("why", *arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: " in refused.stderr
