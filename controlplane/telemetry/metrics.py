"""Every metric of the control plane, in one registry of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controlplane.errors import TABLE, Code
from controlplane.model import State

PHASES: Final = ("queue", "pull", "start", "ready_push", "boot", "configure", "total")
# 5 ms to 5 min: a warm claim and a slow pull both fall inside.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
# 1 ms to 10 s: what a replica hears late from another one.
_LAGS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

PushOutcome = Literal["accepted", "duplicate", "failure", "late", "forged", "error"]
# How a create was served: from a pool, or cold for one of these reasons.
Served = Literal["warm", "none_ready", "other_template", "dead", "no_pool"]


POOLED: Final = ("wanted", "ready", "starting", "outdated")


@dataclass(frozen=True, slots=True)
class Levels:
    """What is true at this moment, for the gauges.

    Attributes:
        pools: of all pools together, by what it is (``POOLED``); empty at replicas that do not plan.
        unstopped: ended sandboxes that their node has not stopped for long.
    """

    states: Mapping[State, int]
    starts_in_flight: int
    starts_queued: int
    feeds: int
    notes_behind: int = 0
    pools: Mapping[str, int] = field(default_factory=dict)
    creates_waiting: int = 0
    unstopped: int = 0
    starts_unplaced: int = 0


class Metrics:
    """Counts and times; labels come from closed sets only, but for the names of pools, which operators declare."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._phases = Histogram(
            "rollbox_create_phase_seconds", "Phases of starts.", ["phase"], buckets=_BUCKETS, registry=registry
        )
        self._creates = Counter(
            "rollbox_creates",
            "Creates by what they were given: a warm sandbox, when it has answered, or a cold start, and why.",
            ["pool", "served"],
            registry=registry,
        )
        self._ends = Counter("rollbox_sandbox_ends", "Sandboxes that ended.", ["cause"], registry=registry)
        self._answers = Counter("rollbox_api_answers", "Answers of the API.", ["status"], registry=registry)
        self._pushes = Counter("rollbox_readiness_pushes", "Readiness pushes.", ["outcome"], registry=registry)
        self._store_errors = Counter("rollbox_store_errors", "Calls to the store that failed.", registry=registry)
        self._forged = Counter(
            "rollbox_forged_addresses",
            "Sandboxes that were not where their readiness push said, each replica's own count.",
            registry=registry,
        )
        self._unreadable = Counter(
            "rollbox_store_unreadable_records", "Records of another version, left out of lists.", registry=registry
        )
        self._resyncs = Counter("rollbox_store_feed_resyncs", "Times the change feed began anew.", registry=registry)
        self._rebuilds = Counter("rollbox_store_rebuilds", "Times that a lost store was rebuilt.", registry=registry)
        self._miscounts = Counter(
            "rollbox_quota_miscounts",
            "Owners whose counted use differed from the records, and was put right.",
            registry=registry,
        )
        self._lag = Histogram(
            "rollbox_store_feed_lag_seconds", "From a change to its news.", buckets=_LAGS, registry=registry
        )
        self._gauges(registry)
        self._known_labels()

    def phase(self, phase: str, duration_ms: int) -> None:
        """Records one phase of a start; ``phase`` is one of ``PHASES``."""
        if phase not in PHASES:
            raise ValueError(f"{phase!r} is not one of {PHASES}")
        self._phases.labels(phase).observe(duration_ms / 1000)

    def created(self, pool: str, served: Served) -> None:
        """Counts a create by what it was given, once; ``pool`` is empty where none has its image."""
        self._creates.labels(pool, served).inc()

    def ended(self, cause: Code) -> None:
        """Counts an end."""
        self._ends.labels(cause).inc()

    def answered(self, status: int) -> None:
        """Counts an answer of the API by its HTTP status."""
        self._answers.labels(f"{min(status // 100, 5)}xx").inc()

    def pushed(self, outcome: PushOutcome) -> None:
        """Counts a readiness push."""
        self._pushes.labels(outcome).inc()

    def forged_address(self) -> None:
        """Counts a sandbox whose push named another address than the cluster does."""
        self._forged.inc()

    def store_failed(self) -> None:
        """Counts a call to the store that failed, repetitions included."""
        self._store_errors.inc()

    def unreadable(self) -> None:
        """Counts a record that this version cannot read, once each."""
        self._unreadable.inc()

    def resynced(self) -> None:
        """Counts a change feed that began, or began anew."""
        self._resyncs.inc()

    def rebuilt(self) -> None:
        """Counts a rebuild of a lost store."""
        self._rebuilds.inc()

    def miscounted(self) -> None:
        """Counts an owner whose use was counted wrong."""
        self._miscounts.inc()

    def lagged(self, lag_ms: int) -> None:
        """Records how late another replica's change was heard of; clocks that differ count as 0."""
        self._lag.observe(max(0, lag_ms) / 1000)

    def render(self, levels: Levels) -> bytes:
        """The text that Prometheus reads; the gauges are set from what is true now."""
        for state, count in levels.states.items():
            self._sandboxes.labels(state).set(count)
        self._starts.set(levels.starts_in_flight)
        self._queued.set(levels.starts_queued)
        self._feeds.set(levels.feeds)
        self._notes.set(levels.notes_behind)
        self._creates_waiting.set(levels.creates_waiting)
        self._unstopped.set(levels.unstopped)
        self._unplaced.set(levels.starts_unplaced)
        for what in POOLED:
            self._pooled.labels(what).set(levels.pools.get(what, 0))
        return generate_latest(self.registry)

    def _gauges(self, registry: CollectorRegistry) -> None:
        self._sandboxes = Gauge("rollbox_sandboxes", "Sandboxes on record.", ["state"], registry=registry)
        self._starts = Gauge("rollbox_starts_in_flight", "Sandboxes that are being started here.", registry=registry)
        self._queued = Gauge("rollbox_starts_queued", "Sandboxes that wait here for their start.", registry=registry)
        self._unplaced = Gauge(
            "rollbox_starts_unplaced", "Sandboxes started here that no node takes.", registry=registry
        )
        self._creates_waiting = Gauge(
            "rollbox_creates_waiting", "Creates that wait here for room under a limit.", registry=registry
        )
        self._unstopped = Gauge(
            "rollbox_sandboxes_not_stopped",
            "Ended sandboxes that this replica waits for, and that their node has not stopped for two minutes.",
            registry=registry,
        )
        self._feeds = Gauge("rollbox_route_feed_subscribers", "Gateways on the route feed.", registry=registry)
        self._pooled = Gauge(
            "rollbox_pool_sandboxes",
            "Unclaimed sandboxes of all pools, told by the replica that plans.",
            ["what"],
            registry=registry,
        )
        self._notes = Gauge("rollbox_annotations_behind", "Sandboxes with facts not yet written.", registry=registry)

    def _known_labels(self) -> None:
        for phase in PHASES:
            self._phases.labels(phase)
        self._creates.labels("", "no_pool")
        for code in TABLE:
            self._ends.labels(code)
        for status in ("2xx", "3xx", "4xx", "5xx"):
            self._answers.labels(status)
        for outcome in get_args(PushOutcome):
            self._pushes.labels(outcome)
