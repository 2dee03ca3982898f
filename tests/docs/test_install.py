"""The command line installs from its wheel alone, as `pipx install ./sdk` does, and completes in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package; what it depends on is taken from here, since a test asks no registry."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "--target", str(folder), str(ROOT / "sdk")], check=True, cwd=folder)
    return folder


def said(installed: Path, *words: str, **environment: str) -> str:
    variables = {**os.environ, "PYTHONPATH": str(installed), **environment}
    program = [sys.executable, str(installed / "bin" / "rollbox"), *words]
    return subprocess.run(program, check=True, capture_output=True, text=True, env=variables, cwd=installed).stdout


def test_the_wheel_has_the_command(installed: Path) -> None:
    assert said(installed, "--version").strip()
    assert "Isolated sandboxes" in said(installed, "--help")


def test_it_completes_a_command(installed: Path) -> None:
    asked = {"_ROLLBOX_COMPLETE": "complete_bash", "COMP_WORDS": "rollbox cre", "COMP_CWORD": "1"}
    assert "create" in said(installed, **asked).split()
    assert "complete" in said(installed, "completion", "bash")
