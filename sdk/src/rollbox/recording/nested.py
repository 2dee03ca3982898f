"""Runs within runs: each counts what is called within it, once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbox._problem import SandboxError
    from rollbox.record import End, SandboxRecord
    from rollbox.recording.recorder import Creating, Recorder


class Nested:
    """Recorders of all runs that the running code belongs to, the innermost first; used as one."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders
        self.name = recorders[0].name

    @contextmanager
    def creating(self, body: Mapping[str, Any], count: int = 1) -> Iterator[_Creates]:
        """As `Recorder.creating`."""
        with ExitStack() as stack:
            yield _Creates([stack.enter_context(one.creating(body, count)) for one in self._recorders])

    @contextmanager
    def executing(self, sandbox_id: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """As `Recorder.executing`."""
        with ExitStack() as stack:
            told = [stack.enter_context(one.executing(sandbox_id)) for one in self._recorders]

            def answered(answer: Mapping[str, Any]) -> None:
                for one in told:
                    one(answer)

            yield answered

    def process(self, sandbox_id: str) -> Callable[[], None]:
        """As `Recorder.process`."""
        told = [one.process(sandbox_id) for one in self._recorders]

        def ended() -> None:
            for one in told:
                one()

        return ended

    def deleted(self, sandbox_id: str, end: End | None = None) -> None:
        """As `Recorder.deleted`."""
        for one in self._recorders:
            one.deleted(sandbox_id, end)

    def rolled_out(self, outcome: str, count: int = 1) -> None:
        """As `Recorder.rolled_out`."""
        for one in self._recorders:
            one.rolled_out(outcome, count)


class _Creates:
    def __init__(self, creates: Sequence[Creating]) -> None:
        self._creates = creates

    def made(self, record: SandboxRecord) -> None:
        for one in self._creates:
            one.made(record)

    def failed(self, error: SandboxError) -> None:
        for one in self._creates:
            one.failed(error)
