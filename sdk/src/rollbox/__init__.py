"""Sandboxes for untrusted code: create, exec, delete.

    async with await Sandbox.create("python:3.12-slim") as sandbox:
        result = await sandbox.exec("pytest -q", timeout=120)

The public names are these and the error classes of `rollbox.errors`; `rollbox.sync` has the same ones without await.
Modules of the package are its own affair otherwise. From leaf to door: quantity, labels, request, record, result
(pure) < settings < retry < transport < gateway < shared < sandbox < client < sync, cli.
"""

from rollbox import errors
from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.client import Client
from rollbox.record import DeleteReport, End, SandboxList, SandboxRecord
from rollbox.request import CreateOptions, ExecOptions
from rollbox.result import ExecResult
from rollbox.retry import RetryPolicy
from rollbox.sandbox import Sandbox
from rollbox.shared import aclose

__all__ = [
    "Client",
    "CreateOptions",
    "DeleteReport",
    "End",
    "ExecOptions",
    "ExecResult",
    "RetryPolicy",
    "Sandbox",
    "SandboxError",
    "SandboxList",
    "SandboxRecord",
    "__version__",
    "aclose",
    "errors",
]
