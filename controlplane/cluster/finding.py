"""What a look at a place for sandboxes finds: for ``rollbox doctor``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what was looked at, whether it is well, what was seen, and what to do if it is not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def finding(name: str, ok: bool, detail: str, fix: str) -> Finding:
    """A finding whose ``fix`` is told only where there is something to fix."""
    return Finding(name, ok, detail, "" if ok else fix)
