"""What the command line and reports print, compared with what is kept in files beside the test.

`ROLLBOX_TEST_WRITE_SCREENS=1` writes the files anew, to be looked at in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

SCREENS = Path(__file__).parents[1] / "unit" / "sdk" / "screens"


def assert_screen(name: str, printed: str) -> None:
    """Fail unless a text is the kept one, byte for byte."""
    kept = SCREENS / name
    if os.environ.get("ROLLBOX_TEST_WRITE_SCREENS"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(printed, encoding="utf-8")
    assert kept.read_text(encoding="utf-8") == printed, f"{kept} differs; ROLLBOX_TEST_WRITE_SCREENS=1 writes it anew"
