"""What an error or an end of rollbox is in one sentence, for protocols that have text alone. Pure.

The code, whose fault it is and whether to mask the sample stand in every sentence.
"""

from __future__ import annotations

from typing import Final

from rollbox import End, SandboxError

ENDED: Final = frozenset(
    {
        "sandbox_not_found",
        "sandbox_forgotten",
        "deleted",
        "create_abandoned",
        "lease_expired",
        "ttl_expired",
        "idle_expired",
        "oom_killed",
        "disk_full",
        "sandbox_lost",
        "sandbox_evicted",
        "node_lost",
        "stopped_by_operator",
    }
)
"""Codes of errors that say that the sandbox is gone, for whatever reason."""


def sentence(error: SandboxError) -> str:
    """Detail and hint of an error, with its code, its fault and whether it masks the sample."""
    return f"{error} {_marks(error.code, error.fault, mask_sample=error.mask_sample)}"


def meaning(end: End) -> str:
    """The end of a sandbox on record, likewise."""
    return f"{end.detail} {_marks(end.cause, end.fault, mask_sample=end.mask_sample)}"


def _marks(code: str, fault: str, *, mask_sample: bool) -> str:
    return f"[{code}, fault: {fault}, mask_sample: {str(mask_sample).lower()}]"
