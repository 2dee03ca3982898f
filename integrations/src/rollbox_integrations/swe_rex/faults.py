"""Failures in SWE-ReX's words."""

from __future__ import annotations

from typing import Any

from swerex.exceptions import DeploymentStartupError, SwerexException

from rollbox import SandboxError
from rollbox_integrations import outcome


class SandboxUnavailableError(SwerexException, RuntimeError):
    """There is no sandbox any more, or the platform does not answer.

    Attributes:
        extra_info: `fault` says whose fault it was and whether to mask the sample; SWE-ReX's server hands it on.
    """

    extra_info: dict[str, Any]


class SandboxNotStartedError(DeploymentStartupError):
    """No sandbox was to be had, and that says nothing about the sample.

    Attributes:
        extra_info: as of `SandboxUnavailableError`.
    """

    extra_info: dict[str, Any]


def unavailable(error: SandboxError) -> Exception:
    """Say why a call failed.

    Returns:
        FileNotFoundError or PermissionError of a file, ValueError of an argument; else SandboxUnavailableError.
    """
    match error.code:
        case "file_not_found":
            return FileNotFoundError(str(error))
        case "permission_denied":
            return PermissionError(str(error))
    return _told(error, SandboxUnavailableError(outcome.sentence(error)))


def not_started(error: SandboxError) -> Exception:
    """Say why there is no sandbox: SandboxNotStartedError, or ValueError of an argument."""
    return _told(error, SandboxNotStartedError(outcome.sentence(error)))


def _told(error: SandboxError, failure: SandboxUnavailableError | SandboxNotStartedError) -> Exception:
    if error.code == "invalid_argument":
        return ValueError(outcome.sentence(error))
    failure.extra_info = {"fault": outcome.fault(error)}
    return failure
