"""The group without `await`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

import rollbox
from rollbox.options import GroupOptions
from rollbox.record import DeleteReport
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.lazy import LazySandbox
from rollbox.sync.loop_thread import run
from rollbox.sync.sandbox import Sandbox

Member = TypeVar("Member", Sandbox, LazySandbox)


class SandboxGroup(Generic[Member]):
    """As `rollbox.SandboxGroup`; a context manager that deletes all its sandboxes unless `detach()` was called."""

    def __init__(
        self,
        inner: rollbox.SandboxGroup[rollbox.Sandbox] | rollbox.SandboxGroup[rollbox.LazySandbox],
        members: Mapping[int, Member],
    ) -> None:
        """Use `create`, `lazy` or `connect` instead."""
        self.inner = inner
        self._members: dict[int, Member] = dict(members)

    @classmethod
    def create(
        cls,
        image: str | None = None,
        *,
        n: int,
        name: str | None = None,
        partial: bool = False,
        client: ClientOwner | None = None,
        **options: Unpack[GroupOptions],
    ) -> SandboxGroup[Sandbox]:
        """As `rollbox.SandboxGroup.create`."""
        made = run(
            rollbox.SandboxGroup.create(image, n=n, name=name, partial=partial, client=inner_of(client), **options)
        )
        return SandboxGroup(made, {sample: Sandbox(member) for sample, member in made.items()})

    @classmethod
    def lazy(
        cls,
        image: str | None = None,
        *,
        n: int,
        name: str | None = None,
        client: ClientOwner | None = None,
        **options: Unpack[GroupOptions],
    ) -> SandboxGroup[LazySandbox]:
        """As `rollbox.SandboxGroup.lazy`."""
        made = rollbox.SandboxGroup.lazy(image, n=n, name=name, client=inner_of(client), **options)
        return SandboxGroup(made, {sample: LazySandbox.of(member) for sample, member in made.items()})

    @classmethod
    def connect(cls, name: str, *, attach: bool = False, client: ClientOwner | None = None) -> SandboxGroup[Sandbox]:
        """As `rollbox.SandboxGroup.connect`."""
        made = run(rollbox.SandboxGroup.connect(name, attach=attach, client=inner_of(client)))
        return SandboxGroup(made, {sample: Sandbox(member) for sample, member in made.items()})

    @property
    def name(self) -> str:
        """The name for `connect`."""
        return self.inner.name

    @property
    def failed(self) -> Mapping[int, rollbox.SandboxError]:
        """By sample, the error why it has no sandbox."""
        return self.inner.failed

    def __getitem__(self, sample: int) -> Member:
        """As `rollbox.SandboxGroup`: the sandbox of a sample; raises the error why it has none."""
        _ = self.inner[sample]
        return self._members[sample]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the existing sandboxes, in the order of their samples."""
        return iter(self._members.values())

    def __len__(self) -> int:
        """Return how many samples have a sandbox."""
        return len(self._members)

    def items(self) -> Iterator[tuple[int, Member]]:
        """Iterate over sample and sandbox, in order."""
        return iter(self._members.items())

    def attach(self) -> None:
        """As `rollbox.SandboxGroup.attach`."""
        run(self.inner.attach())

    def detach(self) -> str:
        """As `rollbox.SandboxGroup.detach`."""
        return run(self.inner.detach())

    def delete(self, *, wait: bool = False, wait_timeout: float | None = None) -> DeleteReport:
        """As `rollbox.SandboxGroup.delete`."""
        return run(self.inner.delete(wait=wait, wait_timeout=wait_timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)
