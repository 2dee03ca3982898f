"""A failure in llm-sandbox's words. Pure."""

from __future__ import annotations

from llm_sandbox.exceptions import ContainerError, SandboxTimeoutError, ValidationError

from rollbox import ExecResult, SandboxError
from rollbox_integrations import outcome


class SandboxUnavailable(ContainerError):  # noqa: N818 - as other hosts' adapters name it
    """There is no sandbox any more, or the platform does not answer: nothing of the code's doing.

    Attributes:
        fault: whose it is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


class CommandTimeoutError(SandboxTimeoutError):
    """A command has passed its time, and was killed with all that it had started; the session goes on.

    Attributes:
        stdout, stderr: what it had written.
    """

    def __init__(self, limit_s: float, result: ExecResult) -> None:
        super().__init__(f"Operation timed out after {limit_s:g} seconds", timeout_duration=limit_s)
        self.stdout, self.stderr = result.stdout, result.stderr


def told(error: SandboxError) -> SandboxUnavailable | ValidationError:
    """Say why a call failed: a `ValidationError` where an argument is wrong, else a `SandboxUnavailable`."""
    wrong = error.fault == "caller" and not error.mask_sample
    return ValidationError(outcome.sentence(error)) if wrong else SandboxUnavailable(error)
