"""A stopwatch for the phases of a start, which another replica can go on with."""

import json
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Started
from controlplane.model import UNKNOWN_PHASE, Sandbox, State
from controlplane.model.states import Event

# What a start waits for before its turn; the replica that waited knows how long.
_AWAITED: Final = frozenset({"copy", "convert"})


class Phases:
    """Durations by phase, in ms.

    Args:
        clock: the time of day.
        sandbox: the record. Where another replica has begun its start, the stopwatch goes on with what is known of it.
        note: ``text`` of that replica's stopwatch; empty: it has left none.
    """

    def __init__(self, clock: Clock, sandbox: Sandbox, note: str = "") -> None:
        self._clock = clock
        self._lap_ms = clock.now_ms()
        self.timings_ms: dict[str, int] = {}
        self._taken_on = sandbox.state is State.STARTING
        self._answered = bool(note)
        if note:
            told = json.loads(note)
            self._lap_ms, self.timings_ms = told["answered_at_ms"], told["timings_ms"]
        else:
            self.timings_ms = begun_elsewhere(sandbox, self._lap_ms)

    @property
    def text(self) -> str:
        """What another replica needs to go on, once the cluster has answered."""
        return json.dumps({"answered_at_ms": self._lap_ms, "timings_ms": self.timings_ms})

    def lap(self, phase: str) -> None:
        """Ends the phase that began with the previous ``lap``, or with the stopwatch; parts of a phase add up."""
        now_ms = self._clock.now_ms()
        self.timings_ms[phase] = self.timings_ms.get(phase, 0) + max(0, now_ms - self._lap_ms)
        self._lap_ms = now_ms

    def waited(self, phase: str = "queue") -> None:
        """Ends a wait before the cluster is asked; of a start that was with it already it is no such wait."""
        if not self._answered:
            self.lap(UNKNOWN_PHASE if self._taken_on else phase)

    def answered(self, answer: Started) -> bool:
        """Takes in that the cluster has answered; False: it had answered another replica before."""
        if self._answered:
            return False
        self.lap("start")
        self.timings_ms.update(answer.timings_ms)
        self._answered = True
        return True

    def pushed(self, boot_ms: int) -> None:
        """Takes in that the readiness push has come.

        Args:
            boot_ms: how long its sidecar took, of the time until now.
        """
        if self._answered:
            self.lap("ready_push")
        elif self._taken_on:
            # Whether the cluster has answered the replica that asked it is not known.
            self.lap(UNKNOWN_PHASE)
            self.timings_ms[UNKNOWN_PHASE] = max(0, self.timings_ms[UNKNOWN_PHASE] - boot_ms)
        else:
            self.lap("start")
            self.lap("ready_push")
        self.timings_ms["boot"] = boot_ms

    def total(self, since_ms: int) -> None:
        """Records the total since ``since_ms`` (Unix ms)."""
        self.timings_ms["total"] = max(0, self._clock.now_ms() - since_ms)


def begun_elsewhere(sandbox: Sandbox, now_ms: int) -> dict[str, int]:
    """The phases of a start until now (Unix ms), as far as its record tells and does not have them. Pure."""
    if not sandbox.timeline or sandbox.state not in (State.QUEUED, State.STARTING):
        return {}
    last = sandbox.timeline[-1]
    if sandbox.state is State.QUEUED and last.word not in _AWAITED:
        return {"queue": max(0, now_ms - last.at_ms)}
    began = Event.START if sandbox.state is State.STARTING else last.word
    began_ms = next((one.at_ms for one in sandbox.timeline if one.word == began), last.at_ms)
    known = {UNKNOWN_PHASE: max(0, now_ms - began_ms)}
    if sandbox.state is State.QUEUED:
        known["queue"] = max(0, began_ms - sandbox.timeline[0].at_ms)
    return known
