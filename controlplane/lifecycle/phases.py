"""A stopwatch for the phases of a start."""

from controlplane.clock import Clock


class Phases:
    """Named laps, in ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin_ms = self._lap_ms = clock.now_ms()
        self.timings_ms: dict[str, int] = {}

    def lap(self, phase: str) -> None:
        """Ends a phase that began with the last lap."""
        now_ms = self._clock.now_ms()
        self.timings_ms[phase] = max(0, now_ms - self._lap_ms)
        self._lap_ms = now_ms

    def total(self, since_ms: int | None = None) -> None:
        """Ends the whole, which began with the stopwatch or at ``since_ms``."""
        begin_ms = self._begin_ms if since_ms is None else since_ms
        self.timings_ms["total"] = max(0, self._clock.now_ms() - begin_ms)
