"""Which version of a host is there, and whether its adapter works with it; looked at before anything is created."""

from __future__ import annotations

import re
from importlib import metadata


def require(distribution: str, oldest: str, extra: str) -> None:
    """Look whether a host is installed, and no older than what its adapter was written for.

    Args:
        distribution: of the host, as pip names it.
        oldest: the first version that the adapter works with.
        extra: of this distribution, which installs it.

    Raises:
        ImportError: it is not there, or too old.
    """
    install = f'pip install "rollbox-integrations[{extra}]"'
    try:
        found = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{distribution} is not installed: {install}") from None
    if _numbers(found) < _numbers(oldest):
        raise ImportError(f"{distribution} {found} is here; rollbox works with {oldest} and newer: {install}")


def _numbers(version: str) -> tuple[int, ...]:
    """The release, and of a pre-release its number: 0.4.1.dev86 is (0, 4, 1, -1, 86), before (0, 4, 1, 0)."""
    release, _, before = re.sub(r"[.-]?(dev|a|b|rc)", "|", version.partition("+")[0], count=1).partition("|")
    numbers = tuple(int(number) for number in re.findall(r"\d+", release))
    return (*numbers, -1, *(int(number) for number in re.findall(r"\d+", before))) if before else (*numbers, 0)
