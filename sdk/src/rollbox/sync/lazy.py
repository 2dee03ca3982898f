"""The lazy sandbox without `await`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Unpack

import rollbox
from rollbox.options import CreateOptions
from rollbox.request import Command, Directory, ExecOptions, SpawnOptions
from rollbox.result import ExecResult
from rollbox.shell import DEFAULT_OUTPUT_BYTES
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.loop_thread import run
from rollbox.sync.process import Process
from rollbox.sync.sandbox import Sandbox
from rollbox.sync.shell import Shell


class LazySandbox:
    """As `rollbox.LazySandbox`; a context manager that deletes what it has started."""

    def __init__(self, image: str, *, client: ClientOwner | None = None, **options: Unpack[CreateOptions]) -> None:
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

    def shell(
        self,
        *,
        cwd: Directory | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> Shell:
        """As `rollbox.LazySandbox.shell`."""
        return Shell(run(self.inner.shell(cwd=cwd, env=env, user=user, max_output_bytes=max_output_bytes)))

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
