"""``Finding``: the result of one check of a backend, for ``rollbox doctor``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what was checked, whether it is in order, what was found, and how to fix it if it is not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def finding(name: str, ok: bool, detail: str, fix: str) -> Finding:
    """The result of one check.

    Args:
        name: what was checked.
        ok: whether it is as it should be.
        detail: what was found.
        fix: what to do about it; dropped if it is ``ok``.
    """
    return Finding(name, ok, detail, "" if ok else fix)
