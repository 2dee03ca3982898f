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
def test_a_sample_that_the_platform_failed_is_masked(apart: FakeGateway, tmp_path: Path) -> None:
    apart.fail("create", Fault("internal"))
    status, report = told(apart, tmp_path, "--set", "software", "--limit", "1", "--in-flight", "1")
    assert status == 1
    assert (report["masked"], report["scored"], report["not_as_expected"]) == (1, 2, 0)


def test_every_bug_is_one_place_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    packages, software = importlib.import_module("packages"), importlib.import_module("software")
    for package in packages.PACKAGES:
        assert (software.DATA / f"{package.archive}.tar.gz").stat().st_size < 200_000
        assert len(package.bugs) == 3
