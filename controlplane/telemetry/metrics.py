"""Every metric of the control plane, in one registry of its own."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controlplane.errors import TABLE, Code
from controlplane.model import State

PHASES: Final = ("queue", "pull", "start", "ready_push", "boot", "configure", "total")
# 5 ms to 5 min: a warm claim and a slow pull both fall inside.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts and times; labels come from closed sets only."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._phases = Histogram(
            "rollbox_create_phase_seconds", "Phases of starts.", ["phase"], buckets=_BUCKETS, registry=registry
        )
        self._ends = Counter("rollbox_sandbox_ends", "Sandboxes that ended.", ["cause"], registry=registry)
        self._sandboxes = Gauge("rollbox_sandboxes", "Sandboxes on record.", ["state"], registry=registry)
        self._starts = Gauge("rollbox_starts_in_flight", "Sandboxes that the cluster is starting.", registry=registry)
        self._queued = Gauge("rollbox_starts_queued", "Sandboxes that wait for their start.", registry=registry)
        self._feeds = Gauge("rollbox_route_feed_subscribers", "Gateways on the route feed.", registry=registry)
        self._answers = Counter("rollbox_api_answers", "Answers of the API.", ["status"], registry=registry)
        for phase in PHASES:
            self._phases.labels(phase)
        for code in TABLE:
            self._ends.labels(code)
        for status in ("2xx", "3xx", "4xx", "5xx"):
            self._answers.labels(status)

    def phase(self, phase: str, duration_ms: int) -> None:
        """Records one phase of a start; ``phase`` is one of ``PHASES``."""
        if phase not in PHASES:
            raise ValueError(f"{phase!r} is not one of {PHASES}")
        self._phases.labels(phase).observe(duration_ms / 1000)

    def ended(self, cause: Code) -> None:
        """Counts an end."""
        self._ends.labels(cause).inc()

    def answered(self, status: int) -> None:
        """Counts an answer of the API by its HTTP status."""
        self._answers.labels(f"{min(status // 100, 5)}xx").inc()

    def render(self, states: Mapping[State, int], in_flight: int, queued: int, feeds: int) -> bytes:
        """The text that Prometheus reads; the gauges are set from what is true now."""
        for state, count in states.items():
            self._sandboxes.labels(state).set(count)
        self._starts.set(in_flight)
        self._queued.set(queued)
        self._feeds.set(feeds)
        return generate_latest(self.registry)
