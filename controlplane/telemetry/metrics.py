"""All metrics of the control plane, in their own registry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controlplane.errors import TABLE, Code
from controlplane.model import State

PHASES: Final = ("queue", "copy", "convert", "pull", "start", "ready_push", "boot", "configure", "total")
# From 5 ms (a warm claim) to 5 min (a slow image pull).
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
# 1 ms to 10 s: how late a replica receives another one's changes.
_LAGS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

PushOutcome = Literal["accepted", "duplicate", "failure", "late", "forged", "error"]
# How a create was served: from a pool, or cold for one of these reasons.
Served = Literal["warm", "none_ready", "other_template", "dead", "no_pool"]


# What became of an image's name at a start: it was pinned to what its group, its pool or the name itself says, to what
# the machine has, to what its registry says, or (while that is away) said last; or it was not, for one of the outcomes
# of registries.
ImagePinned = Literal["pinned", "here", "registry", "stale", "absent", "denied", "limited", "away", "broken"]

# What became of copies into the private registry: was there, was copied, refused (the image is at fault), failed, or
# the mirror did not answer.
ImageCopied = Literal["there", "copied", "refused", "failed", "away"]

# What became of conversions: a sandbox has started from it, or none does; the image is at fault, or it failed; or too
# many waited.
ImageConverted = Literal["offered", "not_started", "refused", "failed", "dropped"]
# Where images are kept.
ImageStore = Literal["node", "commit"]
# What became of an image that was to be removed: it was, it was gone, something uses it, or the removal failed.
ImageRemoved = Literal["removed", "gone", "in_use", "failed"]

POOLED: Final = ("wanted", "ready", "starting", "outdated")


@dataclass(frozen=True, slots=True)
class Levels:
    """Current values for the gauges.

    Attributes:
        pools: unclaimed sandboxes of all pools together, by kind (``POOLED``); empty where this replica does not plan.
        unstopped: ended sandboxes whose node has not stopped them for two minutes.
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
    """Counters, gauges and histograms; labels are from fixed sets, except pool names, which operators declare."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._phases = Histogram(
            "rollbox_create_phase_seconds", "Phases of starts.", ["phase"], buckets=_BUCKETS, registry=registry
        )
        self._creates = Counter(
            "rollbox_creates",
            "Creates by how they were served: by a warm sandbox that has answered, or by a cold start and why.",
            ["pool", "served"],
            registry=registry,
        )
        self._image_pins = Counter(
            "rollbox_image_pins",
            "Starts by how their image was pinned to a digest, or why it was not.",
            ["outcome"],
            registry=registry,
        )
        self._image_copies = Counter(
            "rollbox_image_copies",
            "Copies of images into the private registry that starts have waited for, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._image_conversions = Counter(
            "rollbox_image_conversions",
            "Conversions of images into the form that nodes mount lazily, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._image_pulls = Counter(
            "rollbox_image_pulls",
            "Starts by how their node gets the image, and why whole.",
            ["how", "reason"],
            registry=registry,
        )
        self._prefetches = Counter(
            "rollbox_image_prefetches",
            "Images that were to be pulled before a sandbox needs them: once for each node, by what became of it.",
            ["outcome"],
            registry=registry,
        )
        self._commits = Counter(
            "rollbox_image_commits",
            "Images that were to be made of sandboxes: `ok`, or the code of the failure.",
            ["outcome"],
            registry=registry,
        )
        self._image_removals = Counter(
            "rollbox_image_removals",
            "Images that were to be removed: from nodes to keep a budget, or by owners (commit), by what became of it.",
            ["store", "outcome"],
            registry=registry,
        )
        self._ends = Counter("rollbox_sandbox_ends", "Sandboxes that ended, by cause.", ["cause"], registry=registry)
        self._answers = Counter("rollbox_api_answers", "Answers of the API.", ["status"], registry=registry)
        self._pushes = Counter("rollbox_readiness_pushes", "Readiness pushes.", ["outcome"], registry=registry)
        self._store_errors = Counter("rollbox_store_errors", "Calls to the store that failed.", registry=registry)
        self._forged = Counter(
            "rollbox_forged_addresses",
            "Sandboxes whose readiness push named another address than the cluster, as counted by this replica.",
            registry=registry,
        )
        self._unreadable = Counter(
            "rollbox_store_unreadable_records", "Records of another version that are not listed.", registry=registry
        )
        self._resyncs = Counter(
            "rollbox_store_feed_resyncs", "Starts and restarts of the store's change feed.", registry=registry
        )
        self._rebuilds = Counter("rollbox_store_rebuilds", "Rebuilds of a lost store.", registry=registry)
        self._miscounts = Counter(
            "rollbox_quota_miscounts",
            "Corrections of an owner's counted use that differed from its records.",
            registry=registry,
        )
        self._lag = Histogram(
            "rollbox_store_feed_lag_seconds",
            "Time from another replica's change until this replica received it.",
            buckets=_LAGS,
            registry=registry,
        )
        self._gauges(registry)
        self._known_labels()

    def phase(self, phase: str, duration_ms: int) -> None:
        """Records one phase of a start.

        Args:
            phase: one of ``PHASES``.
            duration_ms: how long it took.

        Raises:
            ValueError: it is not one of ``PHASES``.
        """
        if phase not in PHASES:
            raise ValueError(f"{phase!r} is not one of {PHASES}")
        self._phases.labels(phase).observe(duration_ms / 1000)

    def created(self, pool: str, served: Served) -> None:
        """Counts a create once, by how it was served; ``pool`` is empty where no pool has its image."""
        self._creates.labels(pool, served).inc()

    def image_pinned(self, outcome: ImagePinned) -> None:
        """Counts how the image of a start was pinned, or why it was not."""
        self._image_pins.labels(outcome).inc()

    def image_copied(self, outcome: ImageCopied) -> None:
        """Counts what became of a copy into the private registry."""
        self._image_copies.labels(outcome).inc()

    def image_converted(self, outcome: ImageConverted) -> None:
        """Counts what became of a conversion."""
        self._image_conversions.labels(outcome).inc()

    def image_pulled(self, how: Literal["full", "lazy"], reason: str = "") -> None:
        """Counts how a start gets its image; ``reason``: why whole, of a fixed set."""
        self._image_pulls.labels(how, reason).inc()

    def prefetched(self, outcome: Literal["here", "failed"]) -> None:
        """Counts an image that a node was to pull."""
        self._prefetches.labels(outcome).inc()

    def committed(self, outcome: Code | Literal["ok"]) -> None:
        """Counts a commit."""
        self._commits.labels(outcome).inc()

    def image_removed(self, store: ImageStore, outcome: ImageRemoved) -> None:
        """Counts an image that was to be removed."""
        self._image_removals.labels(store, outcome).inc()

    def image_store(self, store: ImageStore, size_bytes: int, limit_bytes: int) -> None:
        """Records what a store of images has, and what it may have (0: no limit)."""
        self._image_bytes.labels(store).set(size_bytes)
        self._image_limit.labels(store).set(limit_bytes)

    def ended(self, cause: Code) -> None:
        """Counts an ended sandbox."""
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
        """Counts a call to the store that failed; retries count too."""
        self._store_errors.inc()

    def unreadable(self) -> None:
        """Counts a record that this version cannot read, once each."""
        self._unreadable.inc()

    def resynced(self) -> None:
        """Counts a start or restart of the change feed."""
        self._resyncs.inc()

    def rebuilt(self) -> None:
        """Counts a rebuild of a lost store."""
        self._rebuilds.inc()

    def miscounted(self) -> None:
        """Counts an owner whose use was counted wrong."""
        self._miscounts.inc()

    def lagged(self, lag_ms: int) -> None:
        """Records how late another replica's change was received; a negative delay (clock skew) counts as 0."""
        self._lag.observe(max(0, lag_ms) / 1000)

    def render(self, levels: Levels) -> bytes:
        """The metrics in the Prometheus text format; the gauges are set from ``levels``."""
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
        self._starts = Gauge("rollbox_starts_in_flight", "Sandboxes that this replica starts.", registry=registry)
        self._queued = Gauge("rollbox_starts_queued", "Sandboxes in this replica's start queue.", registry=registry)
        self._unplaced = Gauge(
            "rollbox_starts_unplaced", "Starts of this replica that fit on no node at present.", registry=registry
        )
        self._creates_waiting = Gauge(
            "rollbox_creates_waiting",
            "Creates that wait at this replica for room under a quota or the installation's limit.",
            registry=registry,
        )
        self._unstopped = Gauge(
            "rollbox_sandboxes_not_stopped",
            "Ended sandboxes that their node has not stopped for two minutes, as watched by this replica.",
            registry=registry,
        )
        self._feeds = Gauge("rollbox_route_feed_subscribers", "Connected gateways.", registry=registry)
        self._pooled = Gauge(
            "rollbox_pool_sandboxes",
            "Unclaimed sandboxes of all pools, exported by the replica that plans pools.",
            ["what"],
            registry=registry,
        )
        self._image_bytes = Gauge(
            "rollbox_image_store_bytes",
            "What images for sandboxes take in each store, as the replica that cleans it up has seen it last.",
            ["store"],
            registry=registry,
        )
        self._image_limit = Gauge(
            "rollbox_image_store_limit_bytes", "What they may take there; 0: no limit.", ["store"], registry=registry
        )
        self._notes = Gauge("rollbox_annotations_behind", "Sandboxes with unwritten annotations.", registry=registry)

    def _known_labels(self) -> None:
        for phase in PHASES:
            self._phases.labels(phase)
        self._creates.labels("", "no_pool")
        for code in TABLE:
            self._ends.labels(code)
        for status in ("2xx", "3xx", "4xx", "5xx"):
            self._answers.labels(status)
        for pinned in get_args(ImagePinned):
            self._image_pins.labels(pinned)
        for copied in get_args(ImageCopied):
            self._image_copies.labels(copied)
        for converted in get_args(ImageConverted):
            self._image_conversions.labels(converted)
        for store in get_args(ImageStore):
            for removed in get_args(ImageRemoved):
                self._image_removals.labels(store, removed)
        for outcome in get_args(PushOutcome):
            self._pushes.labels(outcome)
