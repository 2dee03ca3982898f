"""The control plane's data model: a create's request (``SandboxSpec``), the record (``Sandbox``), its end. No I/O."""

from controlplane.model.mounts import Mount, scratch_key
from controlplane.model.overcommit import Overcommit
from controlplane.model.quota import RESOURCES, Limits, Quota, Usage
from controlplane.model.record import dump_record, dump_tombstone, load_record, load_timeline, load_tombstone
from controlplane.model.sandbox import (
    LIVE,
    UNKNOWN_PHASE,
    UP,
    WAITS_FOR_ROOM,
    EndCause,
    Moment,
    Pulled,
    Sandbox,
    State,
    pool_owner,
)
from controlplane.model.spec import GROUP, Lease, Range, SandboxSpec, lease_fact, read_lease_fact

__all__ = [
    "GROUP",
    "LIVE",
    "RESOURCES",
    "UNKNOWN_PHASE",
    "UP",
    "WAITS_FOR_ROOM",
    "EndCause",
    "Lease",
    "Limits",
    "Moment",
    "Mount",
    "Overcommit",
    "Pulled",
    "Quota",
    "Range",
    "Sandbox",
    "SandboxSpec",
    "State",
    "Usage",
    "dump_record",
    "dump_tombstone",
    "lease_fact",
    "load_record",
    "load_timeline",
    "load_tombstone",
    "pool_owner",
    "read_lease_fact",
    "scratch_key",
]
