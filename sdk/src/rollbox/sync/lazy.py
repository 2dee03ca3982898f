"""The lazy sandbox without `await`."""

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
from rollbox.record import SandboxRecord
from rollbox.request import Command, ExecOptions, ShellOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.sync.files import Files
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.interpreter import Interpreter
from rollbox.sync.loop_thread import run
from rollbox.sync.ports import Ports
from rollbox.sync.process import Process, Processes
from rollbox.sync.sandbox import Sandbox
from rollbox.sync.shell import Shell, TerminalShell
from rollbox.usage import Usage


class LazySandbox:
    """As `rollbox.LazySandbox`; a context manager that deletes what it has started."""

    def __init__(
        self, image: str | None = None, *, client: ClientOwner | None = None, **options: Unpack[CreateOptions]
    ) -> None:
        """As `rollbox.LazySandbox`."""
        self.inner = rollbox.LazySandbox(image, client=inner_of(client), **options)

    @classmethod
    def of(cls, inner: rollbox.LazySandbox) -> LazySandbox:
        """Wrap an existing `rollbox.LazySandbox`."""
        made = cls.__new__(cls)
        made.inner = inner
        return made

    @property
    def started(self) -> bool:
        """As `rollbox.LazySandbox.started`."""
        return self.inner.started

    @property
    def id(self) -> str | None:
        """As `rollbox.LazySandbox.id`."""
        return self.inner.id

    @property
    def labels(self) -> Mapping[str, str]:
        """As `rollbox.LazySandbox.labels`."""
        return self.inner.labels

    def sandbox(self) -> Sandbox:
        """As `rollbox.LazySandbox.sandbox`."""
        return Sandbox(run(self.inner.sandbox()))

    def exec(self, cmd: Command, **options: Unpack[ExecOptions]) -> ExecResult:
        """As `rollbox.LazySandbox.exec`."""
        return run(self.inner.exec(cmd, **options))

    def spawn(self, cmd: Command, **options: Unpack[SpawnOptions]) -> Process:
        """As `rollbox.LazySandbox.spawn`."""
        return Process(run(self.inner.spawn(cmd, **options)))

    @overload
    def shell(self, *, terminal: Literal[False] = False, **options: Unpack[ShellOptions]) -> Shell: ...

    @overload
    def shell(self, *, terminal: Literal[True] | tuple[int, int], **options: Unpack[ShellOptions]) -> TerminalShell: ...

    def shell(
        self, *, terminal: bool | tuple[int, int] = False, **options: Unpack[ShellOptions]
    ) -> Shell | TerminalShell:
        """As `rollbox.LazySandbox.shell`."""
        if terminal is False:
            return Shell(run(self.inner.shell(**options)))
        return TerminalShell(run(self.inner.shell(terminal=terminal, **options)))

    def interpreter(
        self, language: Literal["python", "node"] = "python", **options: Unpack[InterpreterOptions]
    ) -> Interpreter:
        """As `rollbox.LazySandbox.interpreter`."""
        return Interpreter(run(self.inner.interpreter(language, **options)))

    @property
    def processes(self) -> Processes:
        """As `rollbox.LazySandbox.processes`."""
        return Processes(self.inner.processes)

    @property
    def files(self) -> Files:
        """As `rollbox.LazySandbox.files`."""
        return Files(self.inner.files)

    @property
    def ports(self) -> Ports:
        """As `rollbox.LazySandbox.ports`."""
        return Ports(self.inner.ports)

    def egress(self, policy: Egress | None = None, *, timeout: float = 10) -> EgressState:
        """As `rollbox.LazySandbox.egress`."""
        return run(self.inner.egress(policy, timeout=timeout))

    def egress_log(self) -> EgressLog:
        """As `rollbox.LazySandbox.egress_log`."""
        return run(self.inner.egress_log())

    def usage(self) -> Usage:
        """As `rollbox.LazySandbox.usage`."""
        return run(self.inner.usage())

    def grade(self, image: str | None = None, **options: Unpack[GradeOptions]) -> Verdict:
        """As `rollbox.LazySandbox.grade`."""
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
        """As `rollbox.LazySandbox.commit`."""
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
        """As `rollbox.LazySandbox.scrub_git`."""
        return run(self.inner.scrub_git(path, at=at, user=user, remove_alternates=remove_alternates, timeout=timeout))

    def extend(self, ttl: float) -> SandboxRecord:
        """As `rollbox.LazySandbox.extend`."""
        return run(self.inner.extend(ttl))

    def share(self, ttl: Duration = "10m") -> SharedKey:
        """As `rollbox.LazySandbox.share`."""
        return run(self.inner.share(ttl))

    @property
    def record(self) -> SandboxRecord | None:
        """As `rollbox.LazySandbox.record`."""
        return self.inner.record

    @property
    def draining_at(self) -> float | None:
        """As `rollbox.LazySandbox.draining_at`."""
        return self.inner.draining_at

    def on_draining(self, call: Callable[[float], object] | None) -> None:
        """As `rollbox.LazySandbox.on_draining`; the function is called on the thread of the event loop."""
        self.inner.on_draining(call)

    def refresh(self) -> SandboxRecord:
        """As `rollbox.LazySandbox.refresh`."""
        return run(self.inner.refresh())

    def detach(self) -> str | None:
        """As `rollbox.LazySandbox.detach`."""
        return run(self.inner.detach())

    def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> None:
        """As `rollbox.LazySandbox.delete`."""
        run(self.inner.delete(wait=wait, wait_timeout=wait_timeout))

    def __enter__(self) -> LazySandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)
