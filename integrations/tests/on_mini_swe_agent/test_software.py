"""Repositories with a bug, by an agent that submits a patch: the example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rollbox.sync import Client

EXAMPLE = Path(__file__).parents[2] / "examples/mini_swe_agent_software.py"
IMAGE = os.environ["ROLLBOX_TEST_SWE_IMAGE"]


def test_a_patch_that_mends_a_package_resolves_its_task_and_none_does_not(client: Client) -> None:
    words = [sys.executable, str(EXAMPLE), IMAGE, "1"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    # mini-swe-agent says first where its settings are.
    assert told[-2:] == ["3 of 3 resolved by a scripted solution", "0 of 3 resolved by an empty patch"]
