"""Which run the running code belongs to. Tasks that it starts belong to the same one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbox.recording.nested import Nested
    from rollbox.recording.recorder import Recorder

RUN_LABEL = "rollbox.run"
"""The label with the name of the run."""

_log = logging.getLogger("rollbox")
# A create with more is refused.
_MOST_LABELS = 64
_of_context: ContextVar[Recorder | None] = ContextVar("rollbox_run", default=None)
_of_process: list[Recorder] = []


def current() -> Recorder | Nested | None:
    """Return what notes for the run that the running code belongs to, and those around it; None: of none, or all over.

    The name is that of the innermost one.
    """
    found = innermost()
    if found is None or found.outer is None:
        return found
    # Most programs have no run in a run.
    from rollbox.recording.nested import Nested  # noqa: PLC0415

    around = [found]
    while (outer := around[-1].outer) is not None:
        around.append(outer)
    return Nested([one for one in around if not one.ended])


def innermost() -> Recorder | None:
    """Return the recorder of the innermost run that goes on; None: there is none."""
    found = _of_context.get()
    if found is None and _of_process:
        found = _of_process[-1]
    while found is not None and found.ended:
        found = found.outer
    return found


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
    """Return the body of a create with the label of the run; unchanged where there is none, or no room for it."""
    run, labels = current(), body.get("labels", {})
    if run is None or RUN_LABEL in labels:
        return body
    if len(labels) >= _MOST_LABELS:
        _tell_left_out()
        return body
    return {**body, "labels": {**labels, RUN_LABEL: run.name}}


@cache
def _tell_left_out() -> None:
    _log.warning("creates with %d labels do not get the label %s: there is no room for it", _MOST_LABELS, RUN_LABEL)
