"""Which run the running code belongs to. Tasks that it starts belong to the same one."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbox.recording.recorder import Recorder

RUN_LABEL = "rollbox.run"
"""The label with the name of the run."""

_of_context: ContextVar[Recorder | None] = ContextVar("rollbox_run", default=None)
_of_process: list[Recorder] = []


def current() -> Recorder | None:
    """Return the recorder of the run that the running code belongs to; None: of none, or it is over."""
    found = _of_context.get()
    if found is None and _of_process:
        found = _of_process[-1]
    return None if found is None or found.ended else found


def enter(recorder: Recorder, *, all_threads: bool = False) -> None:
    """Let what is called from here on belong to a run.

    Args:
        recorder: of the run.
        all_threads: also what other threads call that belongs to no run.
    """
    _of_process.append(recorder) if all_threads else _of_context.set(recorder)


def leave(recorder: Recorder, before: Recorder | None) -> None:
    """End a run here; what follows belongs to the run `before`."""
    if recorder in _of_process:
        _of_process.remove(recorder)
    else:
        _of_context.set(before)


def labelled(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of a create with the label of the run; unchanged where there is none, or it has one already."""
    run = current()
    if run is None or RUN_LABEL in body.get("labels", {}):
        return body
    return {**body, "labels": {**body.get("labels", {}), RUN_LABEL: run.name}}
