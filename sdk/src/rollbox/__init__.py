"""Sandboxes for untrusted code: create, exec, delete.

    async with await Sandbox.create("python:3.12-slim") as sandbox:
        result = await sandbox.exec("pytest -q", timeout=120)

The public API is `__all__` and the error classes of `rollbox.errors`; `rollbox.sync` has blocking versions.
All other modules are internal. Layers, lowest first: exec_output, errors, quantity, labels, request, dataset, egress,
options, audit, record, result, usage, image, capacity, node, timeline, breaker, recording, report (pure) < settings,
tracing < retry < leases < transport < gateway < process, files, ports, prefetch, conversion, build, events < shell <
interpreter, shared < ahead, sandbox < git_scrub, lazy < group < batch, run, health < client < task_images < sync, cli.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from rollbox._version import __version__

if TYPE_CHECKING:
    from rollbox import errors
    from rollbox._problem import SandboxError
    from rollbox.api_key import ApiKey, NewApiKey, SharedKey
    from rollbox.audit import AuditEntry
    from rollbox.batch import Batch, Outcome
    from rollbox.breaker import BreakerPolicy
    from rollbox.build import Build, BuildOptions
    from rollbox.capacity import Capacity, NodePool, NodeRoom, Scaling, WaitingStart
    from rollbox.client import Client
    from rollbox.conversion import Conversion
    from rollbox.dataset import Dataset, DatasetRecord, Scratch
    from rollbox.egress import EgressAttempt, EgressPolicy, EgressPreset, EgressRule, EgressState
    from rollbox.events import DeadLetter, Events, SandboxEvent
    from rollbox.files import FileChange, FileInfo, Files, Listing, TransferReport
    from rollbox.git_scrub import ScrubReport
    from rollbox.grading import GradeOptions, GradeTimes, Taken, Verdict
    from rollbox.group import SandboxGroup
    from rollbox.health import Health
    from rollbox.image import (
        BuildProgress,
        BuiltImage,
        Checkpoint,
        Commit,
        Commits,
        CommittedImage,
        ConversionProgress,
        ImageConfig,
        NodeImage,
        PrefetchProgress,
        PrefetchReport,
    )
    from rollbox.interpreter import Interpreter
    from rollbox.interpreter.cell import Cell, CellError, CellOutput, CellResult, Table, Variable
    from rollbox.interpreter.options import CellOptions, InterpreterOptions
    from rollbox.lazy import LazySandbox
    from rollbox.node import Drain, Node
    from rollbox.options import CreateOptions
    from rollbox.pool import Pool, PoolFailure
    from rollbox.prefetch import Prefetch
    from rollbox.process import ExecSummary, Gap, OutputStream, Process, Processes, StdinWriter
    from rollbox.quota import Blocker, Need, NodesToCome, Place, Preflight, Quota, QuotaLimits
    from rollbox.record import DeleteReport, End, SandboxList, SandboxRecord
    from rollbox.recording.tails import Tail
    from rollbox.report.run_report import RunReport
    from rollbox.report.summary import SlowSandbox
    from rollbox.request import ExecOptions, ShellOptions, ShellRunOptions, SpawnOptions
    from rollbox.result import ExecResult, ShellResult
    from rollbox.retry import RetryPolicy
    from rollbox.run import Run
    from rollbox.sandbox import Sandbox
    from rollbox.shared import aclose
    from rollbox.shell import Shell
    from rollbox.terminal_shell import TerminalShell
    from rollbox.timeline import ErrorContext, Moment, Timeline
    from rollbox.usage import Usage

__all__ = [
    "ApiKey",
    "AuditEntry",
    "Batch",
    "Blocker",
    "BreakerPolicy",
    "Build",
    "BuildOptions",
    "BuildProgress",
    "BuiltImage",
    "Capacity",
    "Cell",
    "CellError",
    "CellOptions",
    "CellOutput",
    "CellResult",
    "Checkpoint",
    "Client",
    "Commit",
    "Commits",
    "CommittedImage",
    "Conversion",
    "ConversionProgress",
    "CreateOptions",
    "Dataset",
    "DatasetRecord",
    "DeadLetter",
    "DeleteReport",
    "Drain",
    "EgressAttempt",
    "EgressPolicy",
    "EgressPreset",
    "EgressRule",
    "EgressState",
    "End",
    "ErrorContext",
    "Events",
    "ExecOptions",
    "ExecResult",
    "ExecSummary",
    "FileChange",
    "FileInfo",
    "Files",
    "Gap",
    "GradeOptions",
    "GradeTimes",
    "Health",
    "ImageConfig",
    "Interpreter",
    "InterpreterOptions",
    "LazySandbox",
    "Listing",
    "Moment",
    "Need",
    "NewApiKey",
    "Node",
    "NodeImage",
    "NodePool",
    "NodeRoom",
    "NodesToCome",
    "Outcome",
    "OutputStream",
    "Place",
    "Pool",
    "PoolFailure",
    "Prefetch",
    "PrefetchProgress",
    "PrefetchReport",
    "Preflight",
    "Process",
    "Processes",
    "Quota",
    "QuotaLimits",
    "RetryPolicy",
    "Run",
    "RunReport",
    "Sandbox",
    "SandboxError",
    "SandboxEvent",
    "SandboxGroup",
    "SandboxList",
    "SandboxRecord",
    "Scaling",
    "Scratch",
    "ScrubReport",
    "SharedKey",
    "Shell",
    "ShellOptions",
    "ShellResult",
    "ShellRunOptions",
    "SlowSandbox",
    "SpawnOptions",
    "StdinWriter",
    "Table",
    "Tail",
    "Taken",
    "TerminalShell",
    "Timeline",
    "TransferReport",
    "Usage",
    "Variable",
    "Verdict",
    "WaitingStart",
    "__version__",
    "aclose",
    "errors",
]

# The module of each name of `__all__`, which is imported when the name is first used: to import all of them, with the
# HTTP client, takes longer than a whole `rollbox --help`. A name stands here, in `__all__` and in the imports for type
# checkers above.
_MODULES = {
    "Cell": "interpreter.cell",
    "CellError": "interpreter.cell",
    "CellOptions": "interpreter.options",
    "CellOutput": "interpreter.cell",
    "CellResult": "interpreter.cell",
    "Interpreter": "interpreter",
    "InterpreterOptions": "interpreter.options",
    "Table": "interpreter.cell",
    "Variable": "interpreter.cell",
    "ApiKey": "api_key",
    "AuditEntry": "audit",
    "Batch": "batch",
    "Blocker": "quota",
    "BreakerPolicy": "breaker",
    "Build": "build",
    "BuildOptions": "build",
    "BuildProgress": "image",
    "BuiltImage": "image",
    "Capacity": "capacity",
    "Client": "client",
    "Commit": "image",
    "Commits": "image",
    "Checkpoint": "image",
    "CommittedImage": "image",
    "Conversion": "conversion",
    "ConversionProgress": "image",
    "CreateOptions": "options",
    "Dataset": "dataset",
    "DatasetRecord": "dataset",
    "DeleteReport": "record",
    "Drain": "node",
    "EgressAttempt": "egress",
    "EgressPolicy": "egress",
    "EgressPreset": "egress",
    "EgressRule": "egress",
    "EgressState": "egress",
    "End": "record",
    "ErrorContext": "timeline",
    "DeadLetter": "events",
    "Events": "events",
    "ExecOptions": "request",
    "ExecResult": "result",
    "ShellOptions": "request",
    "ShellResult": "result",
    "ShellRunOptions": "request",
    "ExecSummary": "process",
    "FileChange": "files",
    "FileInfo": "files",
    "Files": "files",
    "Gap": "process",
    "GradeOptions": "grading",
    "GradeTimes": "grading",
    "Taken": "grading",
    "Verdict": "grading",
    "Health": "health",
    "LazySandbox": "lazy",
    "Listing": "files",
    "Moment": "timeline",
    "Need": "quota",
    "NewApiKey": "api_key",
    "Node": "node",
    "ImageConfig": "image",
    "NodeImage": "image",
    "NodePool": "capacity",
    "NodeRoom": "capacity",
    "NodesToCome": "quota",
    "Outcome": "batch",
    "OutputStream": "process",
    "Place": "quota",
    "Pool": "pool",
    "PoolFailure": "pool",
    "Prefetch": "prefetch",
    "PrefetchProgress": "image",
    "PrefetchReport": "image",
    "Preflight": "quota",
    "Process": "process",
    "Processes": "process",
    "Quota": "quota",
    "QuotaLimits": "quota",
    "RetryPolicy": "retry",
    "Run": "run",
    "RunReport": "report.run_report",
    "Sandbox": "sandbox",
    "SandboxError": "_problem",
    "SandboxEvent": "events",
    "SandboxGroup": "group",
    "SandboxList": "record",
    "SandboxRecord": "record",
    "Scaling": "capacity",
    "Scratch": "dataset",
    "ScrubReport": "git_scrub",
    "SharedKey": "api_key",
    "Shell": "shell",
    "TerminalShell": "terminal_shell",
    "SlowSandbox": "report.summary",
    "SpawnOptions": "request",
    "StdinWriter": "process",
    "Tail": "recording.tails",
    "Timeline": "timeline",
    "TransferReport": "files",
    "Usage": "usage",
    "WaitingStart": "capacity",
    "aclose": "shared",
}


if not TYPE_CHECKING:  # A type checker would take any name for one that `__getattr__` has.

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            # Kept, so that this function is called once for each name.
            found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
            return found
        # A module, like `errors` and `sync`: `rollbox.errors.NotFound` needs no import of its own.
        if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
