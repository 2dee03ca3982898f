"""The sandbox without `await`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, Unpack, overload

import rollbox
from rollbox import request
from rollbox.api_key import Duration, SharedKey
from rollbox.egress import Egress, EgressLog, EgressState
from rollbox.git_scrub import ScrubReport
from rollbox.grading import GradeOptions, Verdict
from rollbox.image import Checkpoint, CommittedImage
from rollbox.interpreter.options import InterpreterOptions
from rollbox.options import CommitOptions, CreateOptions
from rollbox.quantity import Size
from rollbox.record import SandboxList, SandboxRecord
from rollbox.request import Command, ExecOptions, ShellOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.sync.files import Files
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.interpreter import Interpreter
from rollbox.sync.loop_thread import run
from rollbox.sync.ports import Ports
from rollbox.sync.process import Process, Processes
from rollbox.sync.shell import Shell, TerminalShell
from rollbox.usage import Usage


class Sandbox:
    """As `rollbox.Sandbox`; a context manager that deletes at the end unless `detach()` was called."""

    def __init__(self, inner: rollbox.Sandbox) -> None:
        """Use `create` or `connect` instead."""
        self.inner = inner

    @classmethod
    def create(
        cls, image: str | None = None, *, client: ClientOwner | None = None, **options: Unpack[CreateOptions]
    ) -> Sandbox:
        """As `rollbox.Sandbox.create`."""
        return cls(run(rollbox.Sandbox.create(image, client=inner_of(client), **options)))

    @classmethod
    def connect(cls, sandbox_id: str, *, attach: bool = False, client: ClientOwner | None = None) -> Sandbox:
        """As `rollbox.Sandbox.connect`."""
        return cls(run(rollbox.Sandbox.connect(sandbox_id, attach=attach, client=inner_of(client))))

    @staticmethod
    def list(
        labels: Mapping[str, str] | None = None,
        *,
        all: bool = False,  # noqa: A002
        client: ClientOwner | None = None,
    ) -> SandboxList:
        """As `rollbox.Sandbox.list`."""
        return run(rollbox.Sandbox.list(labels, all=all, client=inner_of(client)))

    def exec(self, cmd: Command, **options: Unpack[ExecOptions]) -> ExecResult:
        """As `rollbox.Sandbox.exec`; Ctrl-C kills the command on the server."""
        return run(self.inner.exec(cmd, **options))

    def spawn(self, cmd: Command, **options: Unpack[SpawnOptions]) -> Process:
        """As `rollbox.Sandbox.spawn`."""
        return Process(run(self.inner.spawn(cmd, **options)))

    @overload
    def shell(self, *, terminal: Literal[False] = False, **options: Unpack[ShellOptions]) -> Shell: ...

    @overload
    def shell(self, *, terminal: Literal[True] | tuple[int, int], **options: Unpack[ShellOptions]) -> TerminalShell: ...

    def shell(
        self, *, terminal: bool | tuple[int, int] = False, **options: Unpack[ShellOptions]
    ) -> Shell | TerminalShell:
        """As `rollbox.Sandbox.shell`."""
        if terminal is False:
            return Shell(run(self.inner.shell(**options)))
        return TerminalShell(run(self.inner.shell(terminal=terminal, **options)))

    def interpreter(
        self, language: Literal["python", "node"] = "python", **options: Unpack[InterpreterOptions]
    ) -> Interpreter:
        """As `rollbox.Sandbox.interpreter`."""
        return Interpreter(run(self.inner.interpreter(language, **options)))

    @property
    def processes(self) -> Processes:
        """As `rollbox.Sandbox.processes`."""
        return Processes(self.inner.processes)

    @property
    def files(self) -> Files:
        """As `rollbox.Sandbox.files`."""
        return Files(self.inner.files)

    @property
    def ports(self) -> Ports:
        """As `rollbox.Sandbox.ports`."""
        return Ports(self.inner.ports)

    def egress(self, policy: Egress | None = None, *, timeout: float = 10) -> EgressState:
        """As `rollbox.Sandbox.egress`."""
        return run(self.inner.egress(policy, timeout=timeout))

    def egress_log(self) -> EgressLog:
        """As `rollbox.Sandbox.egress_log`."""
        return run(self.inner.egress_log())

    def usage(self) -> Usage:
        """As `rollbox.Sandbox.usage`."""
        return run(self.inner.usage())

    def grade(self, image: str | None = None, **options: Unpack[GradeOptions]) -> Verdict:
        """As `rollbox.Sandbox.grade`."""
        return run(self.inner.grade(image, **options))

    @overload
    def commit(self, name: str, **options: Unpack[CommitOptions]) -> CommittedImage: ...

    @overload
    def commit(
        self, *, checkpoint: Literal[True], ttl: float | None = None, **options: Unpack[CommitOptions]
    ) -> Checkpoint: ...

    def commit(
        self,
        name: str | None = None,
        *,
        checkpoint: bool = False,
        ttl: float | None = None,
        max_bytes: Size | None = None,
        scrub_git: Mapping[str, str] | None = None,
        timeout: float = 120,
        idempotency_key: str | None = None,
    ) -> CommittedImage:
        """As `rollbox.Sandbox.commit`."""
        options: CommitOptions = {
            "max_bytes": max_bytes,
            "scrub_git": scrub_git,
            "timeout": timeout,
            "idempotency_key": idempotency_key,
        }
        if checkpoint and name is None:
            return run(self.inner.commit(checkpoint=True, ttl=ttl, **options))
        request.commit_body(name, checkpoint=checkpoint, ttl=ttl)
        return run(self.inner.commit(str(name), **options))

    def scrub_git(
        self,
        path: str,
        *,
        at: str = "HEAD",
        user: str | None = None,
        remove_alternates: bool = False,
        timeout: float = 300,
    ) -> ScrubReport:
        """As `rollbox.Sandbox.scrub_git`."""
        return run(self.inner.scrub_git(path, at=at, user=user, remove_alternates=remove_alternates, timeout=timeout))

    def extend(self, ttl: float) -> SandboxRecord:
        """As `rollbox.Sandbox.extend`."""
        return run(self.inner.extend(ttl))

    def share(self, ttl: Duration = "10m") -> SharedKey:
        """As `rollbox.Sandbox.share`."""
        return run(self.inner.share(ttl))

    def detach(self) -> str:
        """As `rollbox.Sandbox.detach`."""
        return run(self.inner.detach())

    def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> None:
        """As `rollbox.Sandbox.delete`."""
        run(self.inner.delete(wait=wait, wait_timeout=wait_timeout))

    @property
    def id(self) -> str:
        """Its id, never reused."""
        return self.inner.id

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.inner.labels

    @property
    def draining_at(self) -> float | None:
        """As `rollbox.Sandbox.draining_at`."""
        return self.inner.draining_at

    def on_draining(self, call: Callable[[float], object] | None) -> None:
        """As `rollbox.Sandbox.on_draining`; the function is called on the thread of the event loop."""
        self.inner.on_draining(call)

    def refresh(self) -> SandboxRecord:
        """As `rollbox.Sandbox.refresh`."""
        return run(self.inner.refresh())

    @property
    def record(self) -> SandboxRecord:
        """As `rollbox.Sandbox.record`."""
        return self.inner.record

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)
