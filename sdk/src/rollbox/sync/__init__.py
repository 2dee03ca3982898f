"""The same names without `await`, for programs that are not asynchronous.

    from rollbox.sync import Sandbox

    with Sandbox.create("python:3.12-slim") as sandbox:
        print(sandbox.exec("echo hello").stdout)

Thin wrappers: the asynchronous code runs on one event loop in one background thread, whatever the number of sandboxes.
Thread-safe. There is no `Batch` here, since a thread cannot be cancelled. In asynchronous programs use `rollbox`
itself: a call from here blocks the loop.
"""

from rollbox.sync.client import Client
from rollbox.sync.files import Files
from rollbox.sync.group import SandboxGroup
from rollbox.sync.lazy import LazySandbox
from rollbox.sync.loop_thread import shutdown
from rollbox.sync.process import OutputStream, Process, Processes, StdinWriter
from rollbox.sync.run import Run
from rollbox.sync.sandbox import Sandbox
from rollbox.sync.shell import Shell

__all__ = [
    "Client",
    "Files",
    "LazySandbox",
    "OutputStream",
    "Process",
    "Processes",
    "Run",
    "Sandbox",
    "SandboxGroup",
    "Shell",
    "StdinWriter",
    "shutdown",
]
