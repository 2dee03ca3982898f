"""A failure in openai-agents' words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from agents.sandbox.errors import (
    ConfigurationError,
    ErrorCode,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.errors import SandboxError as HostError

from rollbox import SandboxError
from rollbox.errors import FileNotFound
from rollbox_integrations import outcome

# What the same call may have another answer to, a moment later.
_SAME_CALL = ("later", "resume")


def of_create(error: SandboxError, root: str) -> HostError:
    """Say why there is no sandbox: a `ConfigurationError` where an option is wrong, else a `WorkspaceStartError`."""
    if error.fault == "caller" and not error.mask_sample:
        return ConfigurationError(
            message=outcome.sentence(error),
            error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
            op="start",
            context=_context(error),
            cause=error,
            retryable=False,
        )
    return of_start(error, root)


def of_start(error: SandboxError, root: str) -> WorkspaceStartError:
    """Say why a workspace could not be begun."""
    return WorkspaceStartError(
        path=Path(root),
        message=outcome.sentence(error),
        context=_context(error),
        cause=error,
        retryable=_retryable(error),
    )


def of_command(error: SandboxError, command: Sequence[str | Path]) -> ExecTransportError:
    """Say why a command has no result."""
    return ExecTransportError(
        command=command,
        message=outcome.sentence(error),
        context=_context(error),
        cause=error,
        retryable=_retryable(error),
    )


def of_read(error: SandboxError, path: Path) -> WorkspaceReadNotFoundError | WorkspaceArchiveReadError:
    """Say why a file could not be read."""
    if isinstance(error, FileNotFound):
        return WorkspaceReadNotFoundError(path=path, context=_context(error), cause=error)
    context, again = _context(error), _retryable(error)
    return WorkspaceArchiveReadError(path=path, context=context, cause=error, retryable=again)


def of_write(error: SandboxError, path: Path) -> WorkspaceArchiveWriteError:
    """Say why a file could not be written."""
    context, again = _context(error), _retryable(error)
    return WorkspaceArchiveWriteError(
        path=path, message=outcome.sentence(error), context=context, cause=error, retryable=again
    )


def of_port(port: int, exposed: Sequence[int], error: SandboxError | None = None) -> ExposedPortUnavailableError:
    """Say why a port has no address; without an error, since the installation has no domain for ports."""
    why = {"detail": "the installation has no domain for ports"} if error is None else _context(error)
    return ExposedPortUnavailableError(
        port=port,
        exposed_ports=exposed,
        reason="backend_unavailable",
        context=why,
        cause=error,
        retryable=False if error is None else _retryable(error),
    )


def fault_of(error: BaseException) -> outcome.Fault | None:
    """Say whose fault it was that a run ended, from what `Runner.run` has raised; None: no failure of a sandbox.

    Leave a run out of a loss, or of a mean, where it says `mask_sample`.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, HostError) and "rollbox" in seen.context:
            return cast("outcome.Fault", seen.context["rollbox"])
        seen = seen.__cause__ or seen.__context__
    return None


def _context(error: SandboxError) -> dict[str, object]:
    return {"rollbox": dict(outcome.fault(error))}


def _retryable(error: SandboxError) -> bool:
    return error.retry in _SAME_CALL
