"""Sandboxes for untrusted code: create, exec, delete.

    async with await Sandbox.create("python:3.12-slim") as sandbox:
        result = await sandbox.exec("pytest -q", timeout=120)

The public names are these and the error classes of `rollbox.errors`; `rollbox.sync` has the same ones without await.
Modules of the package are its own affair otherwise. From leaf to door: quantity, labels, request, record, result,
usage (pure) < settings < retry < transport < gateway < process, files < shell < shared < sandbox < client < sync, cli.
"""

from rollbox import errors
from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.client import Client
from rollbox.files import FileChange, FileInfo, Files, Listing, TransferReport
from rollbox.process import ExecSummary, Gap, OutputStream, Process, Processes, StdinWriter
from rollbox.record import DeleteReport, End, SandboxList, SandboxRecord
from rollbox.request import CreateOptions, ExecOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.retry import RetryPolicy
from rollbox.sandbox import Sandbox
from rollbox.shared import aclose
from rollbox.shell import Shell
from rollbox.usage import Usage

__all__ = [
    "Client",
    "CreateOptions",
    "DeleteReport",
    "End",
    "ExecOptions",
    "ExecResult",
    "ExecSummary",
    "FileChange",
    "FileInfo",
    "Files",
    "Gap",
    "Listing",
    "OutputStream",
    "Process",
    "Processes",
    "RetryPolicy",
    "Sandbox",
    "SandboxError",
    "SandboxList",
    "SandboxRecord",
    "Shell",
    "SpawnOptions",
    "StdinWriter",
    "TransferReport",
    "Usage",
    "__version__",
    "aclose",
    "errors",
]
