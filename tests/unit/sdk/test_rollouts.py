"""The example rollout loop, here with plain processes instead of sandboxes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rollbox
from tests.support.gateway_fake import FakeGateway, Fault

EXAMPLES = Path(__file__).parents[3] / "sdk" / "examples"


def told(apart: FakeGateway, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the example; returns its exit status and report."""
    apart.real_execs = True
    paths = os.pathsep.join((str(Path(rollbox.__file__).parents[1]), str(EXAMPLES)))
    environment = {**os.environ, "PYTHONPATH": paths, "MPLCONFIGDIR": str(folder)}
    started = [sys.executable, str(EXAMPLES / "rollouts.py"), "--image", "python", *options]
    done = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(1800)
def test_humaneval_is_learned_from_and_the_rest_of_a_group_is_pruned(apart: FakeGateway, tmp_path: Path) -> None:
    status, report = told(apart, tmp_path, "--limit", "4", "--in-flight", "8")
    assert status == 0, report
    # The endless sample of each group never ends by itself: the group was decided and it was pruned.
    assert (report["rollouts"], report["pruned"]) == (12, 4)
    assert (report["never_started"], report["sandboxes"], report["left_behind"]) == (4, 12, 0)
    assert (report["scored"], report["sum_of_advantages"]) == (12, 0)
    assert {box["state"] for box in apart.sandboxes.values()} == {"ended"}


@pytest.mark.timeout(1800)
def test_a_sample_that_the_platform_failed_is_masked(apart: FakeGateway, tmp_path: Path) -> None:
    apart.fail("create", Fault("internal"))
    status, report = told(apart, tmp_path, "--set", "software", "--limit", "1", "--in-flight", "1")
    assert status == 1
    assert (report["masked"], report["scored"], report["not_as_expected"]) == (1, 2, 0)


# Runs the test suites of three packages many times.
@pytest.mark.timeout(1800)
def test_packages_are_broken_and_repaired_in_twenty_turns(
    apart: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    status, report = told(apart, tmp_path, "--set", "software")
    assert status == 0, report
    assert (report["tasks"], report["rollouts"], report["never_started"]) == (3, 9, 3)
    assert (report["sandboxes"], report["left_behind"]) == (6, 0)


def test_every_bug_is_one_place_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    packages, software = importlib.import_module("packages"), importlib.import_module("software")
    for package in packages.PACKAGES:
        assert (software.DATA / f"{package.archive}.tar.gz").stat().st_size < 200_000
        assert len(package.bugs) == 3
