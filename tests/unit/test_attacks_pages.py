"""What the pages say of attacks is what is tried."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.product import test_grading, test_mounts
from tests.support import build_attacks

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
# Each call is told by the name under which it is tried.
SYSTEM_CALLS = re.findall(r'(?:tried|written)\("|won\.append\("', test_mounts.CALLS)
FILE_CALLS = re.findall(r"lambda: files\.", Path(test_mounts.__file__).read_text())
TASKS = [*test_grading.EXAMPLE.parent.glob("data/harbor/*/task.toml")]
ATTACKERS = runpy.run_path(str(test_grading.EXAMPLE))["AGENTS"].keys() - {"oracle", "does nothing"}


@pytest.mark.parametrize(
    ("page", "tried"),
    [
        ("builds.md", len(build_attacks.ATTACKS)),
        ("datasets.md", len(test_mounts.ATTACKS) + len(SYSTEM_CALLS) + len(FILE_CALLS)),
        ("grading.md", len(test_grading.HOSTILE) + len(TASKS) * len(ATTACKERS)),
    ],
)
def test_a_page_tells_how_many_attacks_there_are(page: str, tried: int) -> None:
    assert f"**Tried {tried}, succeeded 0**" in (GUIDE / page).read_text()
