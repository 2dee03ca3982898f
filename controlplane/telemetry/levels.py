"""What is true at the moment of a scrape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from controlplane.model import State
from controlplane.telemetry.table import Pooled, Role

POOLED: Final[tuple[Pooled, ...]] = get_args(Pooled)


@dataclass(frozen=True, slots=True)
class QuotaLevels:
    """What one owner with a quota uses and may use, by resource; a resource without a limit has none."""

    used: Mapping[str, int]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Levels:
    """Current values for the gauges.

    Attributes:
        pools: unclaimed sandboxes of each pool, by kind (``POOLED``); empty where this replica does not plan.
        event_streams: streams of events that are open at this replica.
        webhooks: of each how many events wait, and the age of the oldest (ms); empty where another replica sends.
        unstopped: ended sandboxes whose node has not stopped them for two minutes.
        nodes_draining: nodes that are emptied.
        store_up: whether the store has answered a moment ago.
        starts_limit, sandboxes_limit: of the installation; 0: no limit.
        oldest_ms: the age of the oldest sandbox in each state; a state without a sandbox may be missing.
        owners: live sandboxes of each owner.
        quotas: by owner; empty where another replica reads them.
        roles: the work that this replica does for all.
        node_pools: nodes of each node pool, by kind (``PoolNodes``); empty where another replica's scaler works.
        egress_unserved: sandboxes with a network policy that no egress replica serves.
        scaler_unplaced: waiting sandboxes that fit on no node, there or to come.
    """

    states: Mapping[State, int]
    starts_in_flight: int
    starts_queued: int
    feeds: int
    notes_behind: int = 0
    pools: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    creates_waiting: int = 0
    unstopped: int = 0
    nodes_draining: int = 0
    starts_unplaced: int = 0
    store_up: bool = True
    starts_limit: int = 0
    sandboxes_limit: int = 0
    oldest_ms: Mapping[State, int] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[str, QuotaLevels] = field(default_factory=dict)
    roles: frozenset[Role] = frozenset()
    node_pools: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    scaler_unplaced: int = 0
    egress_unserved: int = 0
    event_streams: int = 0
    webhooks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
