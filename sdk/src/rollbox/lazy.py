"""A sandbox that is created by the first call that needs it, so a sample that never calls a tool creates none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Unpack

from rollbox.deadline import LEAST_S, Deadline
from rollbox.errors import Deleted, SandboxError, StartTimeout
from rollbox.files import initial
from rollbox.options import CreateOptions, CreateSpec
from rollbox.process import Process
from rollbox.request import Command, Directory, ExecOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.retry import REPEATABLE
from rollbox.sandbox import Sandbox
from rollbox.shared import GatewayOwner
from rollbox.shell import DEFAULT_OUTPUT_BYTES, Shell


class LazySandbox:
    """A sandbox that is created by the first call that needs it; its arguments are checked at once.

    As an asynchronous context manager it deletes the sandbox, if there is one. Calls may run concurrently: the first
    one creates the sandbox, the others wait for it. Until then there is only this object: no request, no asyncio task.
    """

    def __init__(self, image: str, *, client: GatewayOwner | None = None, **options: Unpack[CreateOptions]) -> None:
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
        """Return the sandbox, which is created if needed, for all methods that this class lacks (files, ports, ...).

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

    async def shell(
        self,
        *,
        cwd: Directory | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> Shell:
        """As `Sandbox.shell`; starts the sandbox."""
        made = await self.sandbox()
        return await made.shell(cwd=cwd, env=env, user=user, max_output_bytes=max_output_bytes)

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
