"""The base class of all errors of the SDK. The subclasses, one for each code, are generated into errors.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rollbox.exec_output import ExecOutput

Fault = Literal["caller", "workload", "capacity", "platform"]
Retry = Literal["never", "later", "resume", "new_sandbox"]


class SandboxError(Exception):
    """A failure, identified by a code that says whose fault it is and what to do next.

    Catch a class for one code (`OomKilled`), or this class and read its fields. A code that this version of the SDK
    does not know arrives as a plain SandboxError with the server's own code, fault and retry.

    Attributes:
        code: the name in the error table, e.g. "oom_killed".
        fault: caller, workload, capacity or platform.
        mask_sample: for RL code. True: the failure says nothing about the sample, leave it out of the loss. False: the
            sample caused the failure, score it.
        retry: never, later, resume (same exec_id) or new_sandbox.
        detail: one sentence that names the value at fault.
        hint: what to do next.
        details: further machine-readable values, by name.
        retry_after_ms: how long the server asks to wait before a retry, or None.
        sandbox_id, request_id: the sandbox and the request that failed, for logs and reports; None when not known.
        result: the `ExecResult` of the command, for the errors that `exec(check=True)` raises; else None.
    """

    code: str = "internal"
    fault: Fault = "platform"
    retry: Retry = "later"
    mask_sample: bool = True
    hint: str = ""

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        details: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
        sandbox_id: str | None = None,
        request_id: str | None = None,
        result: ExecOutput | None = None,
    ) -> None:
        # Only the detail goes to args: exceptions are pickled as class + args + __dict__, so this one can be unpickled.
        super().__init__(detail)
        self.detail = detail
        if hint is not None:
            self.hint = hint
        self.details = dict(details or {})
        self.retry_after_ms = retry_after_ms
        self.sandbox_id = sandbox_id
        self.request_id = request_id
        self.result = result

    @property
    def is_infra(self) -> bool:
        """True when neither the caller nor the code in the sandbox is at fault; whether to mask is `mask_sample`."""
        return self.fault in ("capacity", "platform")

    @property
    def wait(self) -> str:
        """How long to wait before a retry, in words; empty: the server asked for no wait."""
        if self.retry_after_ms is None:
            return ""
        return f"Wait {max(1, round(self.retry_after_ms / 1000))} s before {'that' if self.hint else 'another try'}."

    def __str__(self) -> str:
        return f"{self.detail.rstrip('.')}. {f'{self.hint} {self.wait}'.strip()}".rstrip()
