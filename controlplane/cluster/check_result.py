"""``CheckResult``: the result of one check of a backend, for ``rollbox doctor``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One finding.

    Attributes:
        name: what was checked.
        ok: whether it is in order.
        detail: what was found.
        fix: what to do where it is not.
        needed: whether rollbox cannot be used without it.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def finding(name: str, ok: bool, detail: str, fix: str) -> CheckResult:
    """The result of one check.

    Args:
        name: what was checked.
        ok: whether it is as it should be.
        detail: what was found.
        fix: what to do about it; dropped if it is ``ok``.
    """
    return CheckResult(name, ok, detail, "" if ok else fix)
