"""The life of sandboxes: admission, start, readiness, end, reclamation. Knows no HTTP and no engine.

``service.Sandboxes`` is the door; ``lives`` owns what runs; ``endings`` ends it; ``upkeep`` does what nobody asks for;
``states`` is the pure core; ``ledger`` is the only place where a record changes; ``replicas`` is for having others.
"""

from controlplane.lifecycle.activity import Activity
from controlplane.lifecycle.completion import Push
from controlplane.lifecycle.endings import Deleted
from controlplane.lifecycle.parts import Options, Parts
from controlplane.lifecycle.routes import RouteBoard, Subscription
from controlplane.lifecycle.service import Created, Sandboxes
from controlplane.lifecycle.tokens import SigningKey

__all__ = [
    "Activity",
    "Created",
    "Deleted",
    "Options",
    "Parts",
    "Push",
    "RouteBoard",
    "Sandboxes",
    "SigningKey",
    "Subscription",
]
