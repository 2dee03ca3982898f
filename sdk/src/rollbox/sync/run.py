"""The run without `await`."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

import rollbox
from rollbox.report.run_report import RunReport
from rollbox.sync.inner import ClientOwner, inner_of
from rollbox.sync.loop_thread import run


class Run:
    """As `rollbox.Run`; a context manager. What other threads call meanwhile belongs to it too."""

    def __init__(
        self,
        name: str,
        *,
        save_to: str | os.PathLike[str] | None = None,
        show: bool = True,
        client: ClientOwner | None = None,
    ) -> None:
        """As `rollbox.Run`."""
        self.inner = rollbox.Run(name, save_to=save_to, show=show, client=inner_of(client))

    @property
    def name(self) -> str:
        """Its name."""
        return self.inner.name

    def report(self) -> RunReport:
        """As `rollbox.Run.report`."""
        return run(self.inner.report())

    def numbers(self) -> dict[str, float]:
        """As `rollbox.Run.numbers`."""
        return run(self._numbers())

    async def _numbers(self) -> dict[str, float]:
        # On the loop's thread, which counts.
        return self.inner.numbers()

    def __enter__(self) -> Self:
        self.inner.begin(all_threads=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)
