"""A stopwatch for the phases of a start."""

from controlplane.clock import Clock


class Phases:
    """Durations by phase, in ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin_ms = self._lap_ms = clock.now_ms()
        self.timings_ms: dict[str, int] = {}

    def lap(self, phase: str) -> None:
        """Ends the phase that began with the previous ``lap``, or with the stopwatch; parts of a phase add up."""
        now_ms = self._clock.now_ms()
        self.timings_ms[phase] = self.timings_ms.get(phase, 0) + max(0, now_ms - self._lap_ms)
        self._lap_ms = now_ms

    def total(self, since_ms: int | None = None) -> None:
        """Records the total since ``since_ms`` (Unix ms), or since the stopwatch began."""
        begin_ms = self._begin_ms if since_ms is None else since_ms
        self.timings_ms["total"] = max(0, self._clock.now_ms() - begin_ms)
