"""The page of figures says what was measured, and what was declared before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench import record
from tests.bench.declared import all_declared, declared
from tests.bench.figures import BEGIN, END, headlines, in_readme, page
from tests.bench.record import TARGET, Baseline, Record

MACHINE = {"cpu": "a processor", "cores": 2, "memory_mib": 1024, "kernel": "6.1"}
EXEC = "exec of true, p50, 1 at once, against podman exec"


def run(value: float, *, met: bool | None = True, day: str = "01", cores: int = 2) -> dict[str, Any]:
    figure = {
        "figure": EXEC,
        "value": value,
        "unit": "ms",
        "conditions": "all on this machine",
        "baseline": {"what": "podman exec, p50", "value": 100.0},
        "ratio": 100.0 / value,
        "met": met,
    }
    return {
        "measured": f"2026-11-{day}T10:00+00:00",
        "commit": f"c{day}",
        "hardware": {**MACHINE, "cores": cores},
        "versions": {"python": "3.11"},
        "figures": [figure],
    }


def row(text: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {EXEC}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_one_run_is_told_as_it_was() -> None:
    text = page({"exec_path": [run(2.0)]})
    assert "1 run, 2026-11-01, commit c01; 2 cores of a processor, 1024 MiB, Linux 6.1; python 3.11." in text
    what = declared("exec_path", EXEC)
    assert row(text) == [EXEC, what.statistic, "2 ms", "podman exec, p50: 100 ms, ratio 50", what.target, "yes"]
    assert "\n- all on this machine\n" in text


def test_of_several_runs_the_median_with_the_range_and_how_many_met() -> None:
    text = page({"exec_path": [run(2.0), run(10.0, met=False, day="02"), run(4.0, day="03")]})
    assert "3 runs, 2026-11-01 to 2026-11-03, commit c01 to c03" in text
    assert row(text)[2:] == [
        "4 (2 to 10) ms",
        "podman exec, p50: 100 (100 to 100) ms, ratio 25 (10 to 50)",
        "ratio >= 15",
        "**in 2 of 3**",
    ]


def test_another_machine_is_left_out() -> None:
    assert row(page({"exec_path": [run(9.0, cores=64), run(2.0, met=False)]}))[2::3] == ["2 ms", "**no**"]


def test_the_readme_has_the_headlines_between_its_marks() -> None:
    table = headlines({"exec_path": [run(2.0)]})
    seen = "2 ms; podman exec, p50: 100 ms, ratio 50"
    assert table.splitlines()[2:] == [f"| {declared('exec_path', EXEC).headline} | {seen} | ratio >= 15 |"]
    missed = headlines({"exec_path": [run(2.0, met=False)]})
    assert missed.splitlines()[2].endswith("| ratio >= 15 (missed) |")
    assert in_readme(f"a\n{BEGIN}\nold\n{END}\nz", table) == f"a\n{BEGIN}\n{table}{END}\nz"
    with pytest.raises(ValueError, match="no place"):
        in_readme("a", table)


def test_what_was_not_measured_again_stays() -> None:
    other = {**run(3.0, day="02"), "figures": [{**run(3.0)["figures"][0], "figure": "delete of 4000 by label"}]}
    before = page({"exec_path": [run(2.0)], "lifecycle_live": [other]})
    after = page({"exec_path": [run(4.0, day="03")]}, before)
    assert row(after)[2] == "4 ms"
    assert after.partition("\n## lifecycle_live")[2] == before.partition("\n## lifecycle_live")[2] != ""
    table = headlines({"exec_path": [run(2.0)]})
    assert headlines({"lifecycle_live": [other]}, f"# A\n| other | table |\n{table}") == table


def test_all_targets_can_be_read() -> None:
    targets = {what.target for figures in all_declared().values() for what in figures.values()} - {""}
    assert [target for target in targets if not TARGET.fullmatch(target)] == []


def test_what_is_not_declared_is_not_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "BUILD", tmp_path)
    with pytest.raises(KeyError, match="choose its statistic before measuring"):
        record.save("exec_path", [Record("a new one", 1.0, "ms", "")], {})
    assert list(tmp_path.iterdir()) == []


def test_runs_are_kept_behind_one_another_and_judged(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "BUILD", tmp_path)
    for value in range(1, record.RUNS_KEPT + 3):
        one = Record(EXEC, float(value), "ms", "", Baseline("podman exec, p50", 100.0))
        (judged,) = record.save("exec_path", [one], {"python": "3.11"})
        assert judged.met == (100.0 / value >= 15)
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    assert [one["figures"][0]["value"] for one in kept] == [float(n) for n in range(3, record.RUNS_KEPT + 3)]
    assert (kept[-1]["commit"], kept[-1]["versions"]) == (record.commit(), {"python": "3.11"})
    assert page({"exec_path": kept})
