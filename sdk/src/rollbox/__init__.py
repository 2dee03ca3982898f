"""Sandboxes for untrusted code: create, exec, delete.

    async with await Sandbox.create("python:3.12-slim") as sandbox:
        result = await sandbox.exec("pytest -q", timeout=120)

The public API is `__all__` and the error classes of `rollbox.errors`; `rollbox.sync` has blocking versions.
All other modules are internal. Layers, lowest first: quantity, labels, request, record, result, usage, breaker (pure)
< settings < retry < transport < gateway < process, files < shell < shared < sandbox < lazy < group < batch < health
< client < sync, cli.
"""

from rollbox import errors
from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.batch import Batch, Outcome
from rollbox.breaker import BreakerPolicy
from rollbox.client import Client
from rollbox.files import FileChange, FileInfo, Files, Listing, TransferReport
from rollbox.group import SandboxGroup
from rollbox.health import Health
from rollbox.lazy import LazySandbox
from rollbox.pool import Pool, PoolFailure
from rollbox.process import ExecSummary, Gap, OutputStream, Process, Processes, StdinWriter
from rollbox.quota import Blocker, Need, Place, Preflight, Quota, QuotaLimits
from rollbox.record import DeleteReport, End, SandboxList, SandboxRecord
from rollbox.request import CreateOptions, ExecOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.retry import RetryPolicy
from rollbox.sandbox import Sandbox
from rollbox.shared import aclose
from rollbox.shell import Shell
from rollbox.timeline import ErrorContext, Moment, Timeline
from rollbox.usage import Usage

__all__ = [
    "Batch",
    "Blocker",
    "BreakerPolicy",
    "Client",
    "CreateOptions",
    "DeleteReport",
    "End",
    "ErrorContext",
    "ExecOptions",
    "ExecResult",
    "ExecSummary",
    "FileChange",
    "FileInfo",
    "Files",
    "Gap",
    "Health",
    "LazySandbox",
    "Listing",
    "Moment",
    "Need",
    "Outcome",
    "OutputStream",
    "Place",
    "Pool",
    "PoolFailure",
    "Preflight",
    "Process",
    "Processes",
    "Quota",
    "QuotaLimits",
    "RetryPolicy",
    "Sandbox",
    "SandboxError",
    "SandboxGroup",
    "SandboxList",
    "SandboxRecord",
    "Shell",
    "SpawnOptions",
    "StdinWriter",
    "Timeline",
    "TransferReport",
    "Usage",
    "__version__",
    "aclose",
    "errors",
]
