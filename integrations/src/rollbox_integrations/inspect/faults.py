"""Whose fault it was that a sample has no sandbox, from inspect's own log."""

from __future__ import annotations

from typing import cast

from inspect_ai.event import InfoEvent
from inspect_ai.log import EvalSample

from rollbox_integrations.inspect.environment import SOURCE
from rollbox_integrations.outcome import Fault

_ATTACHED = "attachment://"


def fault_of(sample: EvalSample) -> Fault | None:
    """Return the first failure of a sample's sandbox that was no command's; None: there was none.

    Leave a sample out of a loss, or of a mean, where it says `mask_sample`: whatever its score is.
    """
    for event in sample.events:
        if isinstance(event, InfoEvent) and event.source == SOURCE and isinstance(event.data, dict):
            return cast("Fault", {name: _whole(value, sample) for name, value in event.data.items()})
    return None


def _whole(value: object, sample: EvalSample) -> object:
    """A text of a logged event; inspect keeps long ones beside the events."""
    if not isinstance(value, str) or not value.startswith(_ATTACHED):
        return value
    return sample.attachments.get(value.removeprefix(_ATTACHED), value)
