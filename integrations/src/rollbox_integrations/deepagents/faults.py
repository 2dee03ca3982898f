"""A failure in deepagents' words. Pure."""

from __future__ import annotations

from deepagents.backends.protocol import FILE_NOT_FOUND, INVALID_PATH, IS_DIRECTORY, PERMISSION_DENIED

from rollbox import SandboxError
from rollbox.errors import Conflict, FileNotFound, InvalidArgument, NoSpace, PermissionDenied
from rollbox_integrations import outcome


class SandboxUnavailable(RuntimeError):  # noqa: N818 - as other hosts' adapters name it
    """There is no sandbox any more, or the platform does not answer: nothing of the model's doing.

    Attributes:
        fault: whose it is, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


def of_call(error: SandboxError) -> SandboxUnavailable | ValueError:
    """Say why there is no result: a `ValueError` where an argument is wrong, which a model may correct."""
    wrong = error.fault == "caller" and not error.mask_sample
    return ValueError(outcome.sentence(error)) if wrong else SandboxUnavailable(error)


def of_file(error: SandboxError) -> str | None:
    """Say in a word or a sentence what is wrong with a path; None where it is not the path that is wrong."""
    match error:
        case FileNotFound():
            return FILE_NOT_FOUND
        case PermissionDenied():
            return PERMISSION_DENIED
        case InvalidArgument():
            return IS_DIRECTORY if error.details.get("reason") == "is_directory" else INVALID_PATH
        case Conflict() | NoSpace():
            return str(error)
    return None
