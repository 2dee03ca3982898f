"""What takes more than two seconds says what it does."""

from __future__ import annotations

import sys


def doing(what: str) -> None:
    """Tell it, on stderr."""
    print(f"  {what} ...", file=sys.stderr, flush=True)
