"""What the control plane speaks about: the wish (``SandboxSpec``), the record (``Sandbox``), its end. Pure values."""

from controlplane.model.record import dump_record, dump_tombstone, load_record, load_tombstone
from controlplane.model.sandbox import EndCause, Sandbox, State
from controlplane.model.spec import Range, SandboxSpec

__all__ = [
    "EndCause",
    "Range",
    "Sandbox",
    "SandboxSpec",
    "State",
    "dump_record",
    "dump_tombstone",
    "load_record",
    "load_tombstone",
]
