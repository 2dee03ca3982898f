"""A sandbox that is created by the first call that needs it, so a sample that never calls a tool creates none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, overload

from rollbox import request
from rollbox.api_key import Duration, SharedKey
from rollbox.deadline import LEAST_S, Deadline
from rollbox.egress import Egress, EgressLog, EgressState
from rollbox.errors import Deleted, SandboxError, StartTimeout
from rollbox.files import Files, initial
from rollbox.image import Checkpoint, CommittedImage
from rollbox.interpreter import Interpreter
from rollbox.interpreter.options import InterpreterOptions
from rollbox.options import CommitOptions, CreateOptions, CreateSpec
from rollbox.ports import Ports
from rollbox.process import Process, Processes
from rollbox.quantity import Size
from rollbox.record import SandboxRecord
from rollbox.request import Command, ExecOptions, ShellOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.retry import REPEATABLE
from rollbox.sandbox import Sandbox
from rollbox.shared import GatewayOwner
from rollbox.shell import Shell
from rollbox.starting import starting
from rollbox.terminal_shell import TerminalShell
from rollbox.usage import Usage

if TYPE_CHECKING:
    from rollbox.git_scrub import ScrubReport
    from rollbox.grading import GradeOptions, Verdict

_T = TypeVar("_T")


class LazySandbox:
    """A sandbox that is created by the first call that needs it; its arguments are checked at once.

    As an asynchronous context manager it deletes the sandbox, if there is one. Calls may run concurrently: the first
    one creates the sandbox, the others wait for it. Until then there is only this object: no request, no asyncio task.
    It has all that a `Sandbox` has.
    """

    def __init__(
        self, image: str | None = None, *, client: GatewayOwner | None = None, **options: Unpack[CreateOptions]
    ) -> None:
        """Check the arguments; nothing is sent.

        Args:
            image: as for `Sandbox.create`.
            client: as for `Sandbox.create`.
            options: those of `Sandbox.create`. After a failed create, the next call creates again; if the failure was
                final, with another key, made from `idempotency_key`.

        Raises:
            InvalidArgument: an argument is invalid.
        """
        self._spec = CreateSpec.of(image, options)
        initial.checked(self._spec.files)
        self._client = client
        self._creating = asyncio.Lock()
        self._attempts = 0
        self._failures = 0
        self._failure: SandboxError | None = None
        self._sandbox: Sandbox | None = None
        self._detached = False
        self._deleted = False
        self._on_draining: Callable[[float], object] | None = None

    @property
    def started(self) -> bool:
        """Whether a sandbox was created."""
        return self._sandbox is not None

    @property
    def id(self) -> str | None:
        """The id of the sandbox; None before it has started."""
        return None if self._sandbox is None else self._sandbox.id

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the sandbox, also before it has started."""
        return dict(self._spec.labels or {}) if self._sandbox is None else self._sandbox.labels

    async def sandbox(self) -> Sandbox:
        """Return the sandbox, which is created if needed.

        Calls that wait for a create which another call has begun share its result, also a failure.

        Raises:
            Deleted: `delete` was called here before.
            SandboxError: as `Sandbox.create`.
        Cancel safety: as `Sandbox.create`; another call that waits for the same create starts it again, with what is
            left of its own `start_timeout`.
        """
        if self._sandbox is not None:
            return self._sandbox
        deadline, failures = Deadline(self._spec.start_timeout), self._failures
        async with self._creating:
            if self._deleted:
                raise Deleted("this lazy sandbox was deleted by this program")
            if self._failure is not None and self._failures > failures:
                raise self._failure
            if self._sandbox is None:
                self._sandbox = await self._created(deadline)
                self._sandbox.on_draining(self._on_draining)
                if self._detached:
                    await self._sandbox.detach()
            return self._sandbox

    async def _created(self, deadline: Deadline) -> Sandbox:
        if deadline.left_s() < LEAST_S:
            within = f"within the start timeout of {self._spec.start_timeout:g} s"
            raise StartTimeout(f"a create that another call had begun was cancelled, and no time is left {within}")
        try:
            return await self._create(deadline)
        except SandboxError as error:
            self._failures, self._failure = self._failures + 1, error
            raise

    async def _create(self, deadline: Deadline) -> Sandbox:
        spec = self._spec.without_lease() if self._detached else self._spec
        # The platform answers the key of a failed create with that failure, so another attempt needs another key.
        if spec.idempotency_key is not None and self._attempts:
            spec = replace(spec, idempotency_key=f"{spec.idempotency_key}.{self._attempts}")
        self._attempts += 1
        try:
            return await Sandbox._made(spec, self._client, deadline)  # noqa: SLF001 - all but the checks
        except (SandboxError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) or error.code in REPEATABLE:
                # The create was withdrawn, or the same key may still return its sandbox: the key stays.
                self._attempts -= 1
            raise

    async def exec(self, cmd: Command, **options: Unpack[ExecOptions]) -> ExecResult:
        """As `Sandbox.exec`; starts the sandbox."""
        return await (await self.sandbox()).exec(cmd, **options)

    async def spawn(self, cmd: Command, **options: Unpack[SpawnOptions]) -> Process:
        """As `Sandbox.spawn`; starts the sandbox."""
        return await (await self.sandbox()).spawn(cmd, **options)

    @overload
    async def shell(self, *, terminal: Literal[False] = False, **options: Unpack[ShellOptions]) -> Shell: ...

    @overload
    async def shell(
        self, *, terminal: Literal[True] | tuple[int, int], **options: Unpack[ShellOptions]
    ) -> TerminalShell: ...

    async def shell(
        self, *, terminal: bool | tuple[int, int] = False, **options: Unpack[ShellOptions]
    ) -> Shell | TerminalShell:
        """As `Sandbox.shell`; starts the sandbox."""
        made = await self.sandbox()
        return await made.shell(**options) if terminal is False else await made.shell(terminal=terminal, **options)

    async def interpreter(
        self, language: Literal["python", "node"] = "python", **options: Unpack[InterpreterOptions]
    ) -> Interpreter:
        """As `Sandbox.interpreter`; starts the sandbox."""
        return await (await self.sandbox()).interpreter(language, **options)

    @property
    def processes(self) -> Processes:
        """As `Sandbox.processes`; its first call starts the sandbox."""
        return starting(Processes, self._of(lambda made: made.processes))

    @property
    def files(self) -> Files:
        """As `Sandbox.files`; its first call starts the sandbox."""
        return starting(Files, self._of(lambda made: made.files))

    @property
    def ports(self) -> Ports:
        """As `Sandbox.ports`; its first call starts the sandbox."""
        return starting(Ports, self._of(lambda made: made.ports))

    def _of(self, part: Callable[[Sandbox], _T]) -> Callable[[], Awaitable[_T]]:
        async def opened() -> _T:
            return part(await self.sandbox())

        return opened

    async def egress(self, policy: Egress | None = None, *, timeout: float = 10) -> EgressState:  # noqa: ASYNC109
        """As `Sandbox.egress`; starts the sandbox."""
        return await (await self.sandbox()).egress(policy, timeout=timeout)

    async def egress_log(self) -> EgressLog:
        """As `Sandbox.egress_log`; empty before it has started."""
        return [] if self._sandbox is None else await self._sandbox.egress_log()

    async def usage(self) -> Usage:
        """As `Sandbox.usage`; starts the sandbox."""
        return await (await self.sandbox()).usage()

    async def grade(self, image: str | None = None, **options: Unpack[GradeOptions]) -> Verdict:
        """As `Sandbox.grade`; starts the sandbox."""
        from rollbox.grading.options import Grading  # noqa: PLC0415 - rarely used

        Grading(image=image, **options)
        return await (await self.sandbox()).grade(image, **options)

    @overload
    async def commit(self, name: str, **options: Unpack[CommitOptions]) -> CommittedImage: ...

    @overload
    async def commit(
        self, *, checkpoint: Literal[True], ttl: float | None = None, **options: Unpack[CommitOptions]
    ) -> Checkpoint: ...

    async def commit(
        self,
        name: str | None = None,
        *,
        checkpoint: bool = False,
        ttl: float | None = None,
        max_bytes: Size | None = None,
        scrub_git: Mapping[str, str] | None = None,
        timeout: float = 120,  # noqa: ASYNC109
        idempotency_key: str | None = None,
    ) -> CommittedImage:
        """As `Sandbox.commit`; starts the sandbox."""
        options: CommitOptions = {
            "max_bytes": max_bytes,
            "scrub_git": scrub_git,
            "timeout": timeout,
            "idempotency_key": idempotency_key,
        }
        request.commit_body(name, checkpoint=checkpoint, ttl=ttl)
        made = await self.sandbox()
        return await (
            made.commit(checkpoint=True, ttl=ttl, **options) if checkpoint else made.commit(str(name), **options)
        )

    async def scrub_git(
        self,
        path: str,
        *,
        at: str = "HEAD",
        user: str | None = None,
        remove_alternates: bool = False,
        timeout: float = 300,  # noqa: ASYNC109
    ) -> ScrubReport:
        """As `Sandbox.scrub_git`; starts the sandbox."""
        made = await self.sandbox()
        return await made.scrub_git(path, at=at, user=user, remove_alternates=remove_alternates, timeout=timeout)

    async def extend(self, ttl: float) -> SandboxRecord:
        """As `Sandbox.extend`; starts the sandbox."""
        return await (await self.sandbox()).extend(ttl)

    async def share(self, ttl: Duration = "10m") -> SharedKey:
        """As `Sandbox.share`; starts the sandbox."""
        return await (await self.sandbox()).share(ttl)

    async def refresh(self) -> SandboxRecord:
        """As `Sandbox.refresh`; starts the sandbox."""
        return await (await self.sandbox()).refresh()

    @property
    def record(self) -> SandboxRecord | None:
        """As `Sandbox.record`; None before it has started."""
        return None if self._sandbox is None else self._sandbox.record

    @property
    def draining_at(self) -> float | None:
        """As `Sandbox.draining_at`; None before it has started."""
        return None if self._sandbox is None else self._sandbox.draining_at

    def on_draining(self, call: Callable[[float], object] | None) -> None:
        """As `Sandbox.on_draining`, also for a sandbox that starts later."""
        self._on_draining = call
        if self._sandbox is not None:
            self._sandbox.on_draining(call)

    async def detach(self) -> str | None:
        """Leave the sandbox running when the `async with` ends; returns its id, None before it has started."""
        self._detached = True
        return None if self._sandbox is None else await self._sandbox.detach()

    async def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> None:
        """Delete the sandbox if it was started, as `Sandbox.delete`; later calls are refused. Idempotent."""
        self._deleted = True
        # Waits for a create in progress, whose sandbox is deleted too.
        async with self._creating:
            if self._sandbox is not None:
                await self._sandbox.delete(wait=wait, wait_timeout=wait_timeout)

    async def __aenter__(self) -> LazySandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deleted = True
        async with self._creating:
            if self._sandbox is not None:
                await self._sandbox.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"LazySandbox(image={self._spec.image!r}, id={self.id!r})"
