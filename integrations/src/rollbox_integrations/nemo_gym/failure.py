"""Failures in NeMo Gym's words: errors that carry whose fault they were, and fields of a verify response. Pure."""

from __future__ import annotations

from typing import TypedDict

from nemo_gym import failure_kinds
from nemo_gym.sandbox import SandboxCreateError, SandboxExecResult

from rollbox import SandboxError
from rollbox_integrations import outcome

# Of `SandboxExecResult`, where there is no exit code: what NeMo Gym's own providers return.
NO_CODE = 125
LOST = "sandbox"
TIMEOUT = "timeout"

_KINDS = {
    "quota_exceeded": failure_kinds.PROVIDER_QUOTA_EXHAUSTED,
    "rate_limited": failure_kinds.PROVIDER_QUOTA_EXHAUSTED,
    "oom_killed": failure_kinds.PROVIDER_OOM_KILLED,
    "exec_cancelled": failure_kinds.CANCELLED,
    "lease_expired": failure_kinds.SESSION_EXPIRED,
    "ttl_expired": failure_kinds.SESSION_EXPIRED,
    "idle_expired": failure_kinds.SESSION_EXPIRED,
    "deleted": failure_kinds.SESSION_LOST,
    "sandbox_not_found": failure_kinds.SESSION_LOST,
    "sandbox_forgotten": failure_kinds.SESSION_LOST,
    "sandbox_lost": failure_kinds.SESSION_LOST,
    "sandbox_evicted": failure_kinds.SESSION_LOST,
    "node_lost": failure_kinds.SESSION_LOST,
    "stopped_by_operator": failure_kinds.SESSION_LOST,
}
_OF_THE_PLATFORM = ("platform", "capacity")


class Failure(TypedDict):
    """The fields of `BaseVerifyResponse` that say whether its reward counts.

    Attributes:
        mask_sample: whether to leave the sample out.
        failure_kind: a name of `nemo_gym.failure_kinds`, or `rollbox:CODE`; None: nothing failed.
        failure_reason: the code, whose fault it was, and why; None: nothing failed.
    """

    mask_sample: bool
    failure_kind: str | None
    failure_reason: str | None


class RollboxExecResult(SandboxExecResult):
    """A command's end that carries whose fault it was that it has no exit code.

    Attributes:
        fault: as for errors.
    """

    fault: outcome.Fault

    def __init__(self, error: SandboxError) -> None:
        masked = LOST if error.mask_sample else error.code
        super().__init__(stdout=None, stderr=outcome.sentence(error), return_code=NO_CODE, error_type=masked)
        object.__setattr__(self, "fault", outcome.fault(error))


class RollboxCreateError(SandboxCreateError):
    """There is no sandbox.

    Attributes:
        fault: whose fault that is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


class RollboxCallError(RuntimeError):
    """A call other than a command has failed.

    Attributes:
        fault: whose fault that is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


def failure(subject: SandboxExecResult | BaseException) -> Failure:
    """Say what a verify response has of a command's end or of an error.

        response = BaseVerifyResponse(**body.model_dump(), reward=0.0, **failure(result))

    Args:
        subject: a result of `exec`, or what a call of the sandbox has raised.

    Returns:
        mask_sample is False where the sample's own code is why, and for whatever is no failure of a sandbox.
    """
    fault: outcome.Fault | None = getattr(subject, "fault", None)
    if fault is None:
        return Failure(mask_sample=False, failure_kind=None, failure_reason=None)
    return Failure(mask_sample=fault["mask_sample"], failure_kind=_kind(fault), failure_reason=_reason(fault))


def _kind(fault: outcome.Fault) -> str:
    if (kind := _KINDS.get(fault["code"])) is not None:
        return kind
    return failure_kinds.PROVIDER_UNAVAILABLE if fault["fault"] in _OF_THE_PLATFORM else f"rollbox:{fault['code']}"


def _reason(fault: outcome.Fault) -> str:
    return f"{fault['code']} ({fault['fault']}), sandbox {fault['sandbox_id'] or 'none'}: {fault['why']}"
