"""All metrics of the control plane, as contract/metrics.toml declares them, in their own registry."""

from typing import Final, Literal, get_args

from controlplane.errors import TABLE, Code
from controlplane.model import RESOURCES, State
from controlplane.telemetry.declared import DeclaredNames
from controlplane.telemetry.families import Families
from controlplane.telemetry.levels import POOLED, Levels
from controlplane.telemetry.table import (
    AuditLost,
    Drained,
    EgressWaited,
    FullReason,
    FullStart,
    GaveRoom,
    ImageConverted,
    ImageCopied,
    ImagePinned,
    ImageRemoved,
    ImageStore,
    Phase,
    PoolNodes,
    Prefetched,
    Pulled,
    PushOutcome,
    RefusedCall,
    Role,
    Room,
    ScalerStep,
    Scheduled,
    Served,
    Start,
    Waited,
    WebhookOutcome,
)

PHASES: Final[tuple[str, ...]] = get_args(Phase)


class Metrics:
    """Counters, gauges and histograms; labels are from closed sets, except names that operators declare."""

    def __init__(self) -> None:
        self._families = families = Families()
        self.registry = families.registry
        self._pool_names, self._owner_names, self._node_pool_names = DeclaredNames(), DeclaredNames(), DeclaredNames()
        self._webhook_names = DeclaredNames()
        self._phases = families.histogram("rollbox_create_phase_seconds", PHASES, ("cold", "pool"))
        self._phases.labels("total", "warm")
        self._waits = families.histogram("rollbox_create_wait_seconds", get_args(Room), get_args(Waited))
        self._egress_waits = families.histogram("rollbox_egress_wait_seconds", get_args(EgressWaited))
        self._egress_lost = families.counter("rollbox_egress_attempts_lost")
        self._calls_refused = families.counter("rollbox_calls_refused", get_args(RefusedCall))
        self._audit_lost = families.counter("rollbox_audit_lost", get_args(AuditLost))
        self._webhook_events = families.counter("rollbox_webhook_events")
        self._webhook_retries = families.counter("rollbox_webhook_retries")
        self._egress_refused = families.counter("rollbox_egress_feed_refused")
        self._gave_way = families.counter("rollbox_unclaimed_gave_way", get_args(GaveRoom))
        self._creates = families.counter("rollbox_creates", ("",), ("no_pool",))
        self._image_pins = families.counter("rollbox_image_pins", get_args(ImagePinned))
        self._image_copies = families.counter("rollbox_image_copies", get_args(ImageCopied))
        self._image_conversions = families.counter("rollbox_image_conversions", get_args(ImageConverted))
        self._image_pulls = families.counter("rollbox_image_pulls", ("full",), get_args(FullReason))
        self._image_pulls.labels("lazy", "")
        self._prefetches = families.counter("rollbox_image_prefetches", get_args(Prefetched))
        self._commits = families.counter("rollbox_image_commits", ("ok",))
        self._image_removals = families.counter("rollbox_image_removals", get_args(ImageStore), get_args(ImageRemoved))
        self._full_starts = families.counter("rollbox_registry_full_starts", get_args(FullStart))
        self._collections = families.histogram("rollbox_registry_collection_seconds")
        self._collections_failed = families.counter("rollbox_registry_collections_failed")
        self._collected_bytes = families.counter("rollbox_registry_collected_bytes")
        self._ends = families.counter("rollbox_sandbox_ends")
        for code, entry in TABLE.items():
            self._ends.labels(code, entry.fault, _masked(code))
        self._owner_ends = families.counter("rollbox_owner_ends")
        self._answers = families.counter("rollbox_api_answers", ("1xx", "2xx", "3xx", "4xx", "5xx"))
        self._pushes = families.counter("rollbox_readiness_pushes", get_args(PushOutcome))
        self._store_calls = families.histogram("rollbox_store_call_seconds")
        self._store_errors = families.counter("rollbox_store_errors")
        self._forged = families.counter("rollbox_forged_addresses")
        self._disagreements = families.counter("rollbox_placement_disagreements", get_args(Scheduled))
        self._drained = families.counter("rollbox_drained_sandboxes", get_args(Drained))
        self._unreadable = families.counter("rollbox_store_unreadable_records")
        self._resyncs = families.counter("rollbox_store_feed_resyncs")
        self._rebuilds = families.counter("rollbox_store_rebuilds")
        self._miscounts = families.counter("rollbox_quota_miscounts")
        self._lag = families.histogram("rollbox_store_feed_lag_seconds")
        self._scaler_steps = families.counter("rollbox_scaler_steps")
        self._scaler_failures = families.counter("rollbox_scaler_failures")
        self._gauges(families)

    def phase(self, phase: str, duration_ms: int, start: Start = "cold", sandbox_id: str = "") -> None:
        """Records one phase of a start.

        Args:
            phase: one of ``PHASES``.
            duration_ms: how long it took.
            start: for whom: an owner who waits, a pool, or (only ``total``) a claim.
            sandbox_id: kept as the exemplar of its bucket; empty: none.

        Raises:
            ValueError: it is not one of ``PHASES``.
        """
        if phase not in PHASES:
            raise ValueError(f"{phase!r} is not one of {PHASES}")
        exemplar = {"sandbox_id": sandbox_id} if sandbox_id else None
        self._phases.labels(phase, start).observe(duration_ms / 1000, exemplar)

    def created(self, pool: str, served: Served) -> None:
        """Counts a create once, by how it was served; ``pool`` is empty where no pool has its image."""
        self._creates.labels(self._pool_names.told(pool) if pool else "", served).inc()

    def waited(self, room: Room, outcome: Waited, wait_ms: int) -> None:
        """Records the wait of a create for room; ``room``: what was missing last."""
        self._waits.labels(room, outcome).observe(max(0, wait_ms) / 1000)

    def egress_waited(self, outcome: EgressWaited, wait_s: float) -> None:
        """Records the wait of a caller until a network policy is in force."""
        self._egress_waits.labels(outcome).observe(max(0.0, wait_s))

    def egress_attempts_lost(self, attempts: int) -> None:
        """Counts attempts of sandboxes that the store did not take."""
        self._egress_lost.inc(attempts)

    def call_refused(self, reason: RefusedCall) -> None:
        """Counts a call that was refused for its key or its owner."""
        self._calls_refused.labels(reason).inc()

    def audit_lost(self, where: AuditLost, entries: int) -> None:
        """Counts audit entries that are not kept."""
        self._audit_lost.labels(where).inc(entries)

    def webhook_events(self, webhook: str, outcome: WebhookOutcome, events: int) -> None:
        """Counts events for a webhook that are settled."""
        self._webhook_events.labels(self._webhook_names.told(webhook), outcome).inc(events)

    def webhook_retried(self, webhook: str) -> None:
        """Counts a request to a webhook that is sent again."""
        self._webhook_retries.labels(self._webhook_names.told(webhook)).inc()

    def egress_feed_refused(self) -> None:
        """Counts a call for the feed of egress that came without its key."""
        self._egress_refused.inc()

    def gave_way(self, room: GaveRoom) -> None:
        """Counts an unclaimed sandbox that was ended for a create; ``room``: what that found no room in."""
        self._gave_way.labels(room).inc()

    def image_pinned(self, outcome: ImagePinned) -> None:
        """Counts how the image of a start was pinned, or why it was not."""
        self._image_pins.labels(outcome).inc()

    def image_copied(self, outcome: ImageCopied) -> None:
        """Counts what became of a copy into the private registry."""
        self._image_copies.labels(outcome).inc()

    def image_converted(self, outcome: ImageConverted) -> None:
        """Counts what became of a conversion."""
        self._image_conversions.labels(outcome).inc()

    def image_pulled(self, how: Pulled, reason: FullReason = "") -> None:
        """Counts how a start gets its image; ``reason``: why whole."""
        self._image_pulls.labels(how, reason).inc()

    def prefetched(self, outcome: Prefetched) -> None:
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

    def registry_full_start(self, outcome: FullStart) -> None:
        """Counts a start for whose image the private registry had no room."""
        self._full_starts.labels(outcome).inc()

    def registry_collected(self, freed_bytes: int, blobs: int, within_s: float) -> None:
        """Records a collection of the private registry's garbage, and what is left."""
        self._collections.observe(within_s)
        self._collected_bytes.inc(freed_bytes)
        self._registry_stored.labels("blob").set(blobs)

    def registry_not_collected(self) -> None:
        """Counts a collection that has failed."""
        self._collections_failed.inc()

    def registry_images(self, copies: int, others: int) -> None:
        """Records how many images the private registry has."""
        self._registry_stored.labels("copy").set(copies)
        self._registry_stored.labels("other").set(others)

    def ended(self, cause: Code, owner: str = "") -> None:
        """Counts an ended sandbox; ``owner``: whose it was, empty where it was nobody's."""
        fault = TABLE[cause].fault
        self._ends.labels(cause, fault, _masked(cause)).inc()
        if owner:
            self._owner_ends.labels(self._owner_names.told(owner), fault).inc()

    def answered(self, status: int) -> None:
        """Counts an answer of the API by its HTTP status."""
        self._answers.labels(f"{min(status // 100, 5)}xx").inc()

    def pushed(self, outcome: PushOutcome) -> None:
        """Counts a readiness push."""
        self._pushes.labels(outcome).inc()

    def placed_without_room(self) -> None:
        """Counts a sandbox that the scheduler placed where the platform saw no room."""
        self._disagreements.labels("placed").inc()

    def refused_in_spite_of_room(self) -> None:
        """Counts a sandbox that the scheduler placed nowhere although the platform saw room for it."""
        self._disagreements.labels("refused").inc()

    def drained(self, step: Drained) -> None:
        """Counts what was done with a sandbox on a node that is emptied."""
        self._drained.labels(step).inc()

    def turned_away(self) -> None:
        """Counts a sandbox that the scheduler placed on a node which then refused it."""
        self._disagreements.labels("turned_away").inc()

    def forged_address(self) -> None:
        """Counts a sandbox whose push named another address than the cluster does."""
        self._forged.inc()

    def store_called(self, took_s: float) -> None:
        """Records how long a step of the store took."""
        self._store_calls.observe(took_s)

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

    def scaled(self, node_pool: str, step: ScalerStep) -> None:
        """Counts a step of the scaler."""
        self._scaler_steps.labels(self._node_pool_names.told(node_pool), step).inc()

    def provider_failed(self, node_pool: str, cause: Code) -> None:
        """Counts a call to a node provider that failed."""
        self._scaler_failures.labels(self._node_pool_names.told(node_pool), cause).inc()

    def render(self, levels: Levels, accept: str = "") -> tuple[bytes, str]:
        """The metrics as text, with gauges as ``levels`` says, and its media type, chosen by ``accept`` (a header)."""
        self._set_starts(levels)
        self._set_sandboxes(levels)
        self._set_declared(levels)
        for role in get_args(Role):
            self._roles.labels(role).set(role in levels.roles)
        return self._families.encoded(accept)

    def _set_starts(self, levels: Levels) -> None:
        self._starts.set(levels.starts_in_flight)
        self._starts_limit.set(levels.starts_limit)
        self._queued.set(levels.starts_queued)
        self._unplaced.set(levels.starts_unplaced)
        self._creates_waiting.set(levels.creates_waiting)
        self._feeds.set(levels.feeds)
        self._event_streams.set(levels.event_streams)
        self._notes.set(levels.notes_behind)
        self._store_up.set(levels.store_up)

    def _set_sandboxes(self, levels: Levels) -> None:
        if not levels.states:
            self._sandboxes.clear()
        for state, count in levels.states.items():
            self._sandboxes.labels(state).set(count)
        for state in State:
            self._oldest.labels(state).set(levels.oldest_ms.get(state, 0) / 1000)
        self._sandboxes_limit.set(levels.sandboxes_limit)
        self._unstopped.set(levels.unstopped)
        self._egress_unserved.set(levels.egress_unserved)
        self._nodes_draining.set(levels.nodes_draining)

    def _set_declared(self, levels: Levels) -> None:
        """The gauges of names that come and go: what is gone, or is another replica's to tell, has no series."""
        for gauge in (self._pooled, self._owned, self._quota_used, self._quota_limit, self._node_pools):
            gauge.clear()
        self._set_webhooks(levels)
        self._scaler_unplaced.set(levels.scaler_unplaced)
        for node_pool, nodes in levels.node_pools.items():
            for nodes_what in get_args(PoolNodes):
                self._node_pools.labels(self._node_pool_names.told(node_pool), nodes_what).set(nodes.get(nodes_what, 0))
        for pool, counts in levels.pools.items():
            name = self._pool_names.told(pool)
            for what in POOLED:
                self._pooled.labels(name, what).inc(counts.get(what, 0))
        for owner, count in levels.owners.items():
            self._owned.labels(self._owner_names.told(owner)).inc(count)
        for owner, quota in levels.quotas.items():
            name = self._owner_names.told(owner)
            for resource in RESOURCES:
                self._quota_used.labels(name, resource).inc(quota.used.get(resource, 0))
                if limit := quota.limits.get(resource):
                    self._quota_limit.labels(name, resource).inc(limit)

    def _set_webhooks(self, levels: Levels) -> None:
        self._webhook_queued.clear()
        self._webhook_oldest.clear()
        for webhook, (queued, oldest_ms) in levels.webhooks.items():
            name = self._webhook_names.told(webhook)
            self._webhook_queued.labels(name).set(queued)
            self._webhook_oldest.labels(name).set(oldest_ms / 1000)

    def _gauges(self, families: Families) -> None:
        self._sandboxes = families.gauge("rollbox_sandboxes", tuple(State))
        self._sandboxes_limit = families.gauge("rollbox_sandboxes_limit")
        self._oldest = families.gauge("rollbox_sandbox_oldest_seconds", tuple(State))
        self._unstopped = families.gauge("rollbox_sandboxes_not_stopped")
        self._nodes_draining = families.gauge("rollbox_nodes_draining")
        self._starts = families.gauge("rollbox_starts_in_flight")
        self._starts_limit = families.gauge("rollbox_starts_limit")
        self._queued = families.gauge("rollbox_starts_queued")
        self._unplaced = families.gauge("rollbox_starts_unplaced")
        self._creates_waiting = families.gauge("rollbox_creates_waiting")
        self._feeds = families.gauge("rollbox_route_feed_subscribers")
        self._event_streams = families.gauge("rollbox_event_streams")
        self._webhook_queued = families.gauge("rollbox_webhook_queued")
        self._webhook_oldest = families.gauge("rollbox_webhook_oldest_seconds")
        self._notes = families.gauge("rollbox_annotations_behind")
        self._store_up = families.gauge("rollbox_store_up")
        self._roles = families.gauge("rollbox_replica_role", get_args(Role))
        self._image_bytes = families.gauge("rollbox_image_store_bytes")
        self._image_limit = families.gauge("rollbox_image_store_limit_bytes")
        self._registry_stored = families.gauge("rollbox_registry_stored")
        self._node_pools = families.gauge("rollbox_node_pool_nodes")
        self._scaler_unplaced = families.gauge("rollbox_scaler_unplaced")
        self._egress_unserved = families.gauge("rollbox_egress_unserved")
        self._pooled = families.gauge("rollbox_pool_sandboxes")
        self._owned = families.gauge("rollbox_owner_sandboxes")
        self._quota_used = families.gauge("rollbox_quota_used")
        self._quota_limit = families.gauge("rollbox_quota_limit")


def _masked(code: Code) -> str:
    return "true" if TABLE[code].mask_sample else "false"
