"""The life of sandboxes: admission, start, readiness, end, reclamation. Knows no HTTP and no engine.

``service.sandboxes`` is what the API calls; ``service.composition`` puts the parts together, top down;
``record.ledger`` is the only place where a record changes, and publishes every change to the parts that follow from it.
"""

from controlplane.lifecycle.dependencies import Dependencies, Options
from controlplane.lifecycle.egress import Egress
from controlplane.lifecycle.ending.endings import Deleted
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.routes import RouteBoard, Subscription
from controlplane.lifecycle.service.creates import Created
from controlplane.lifecycle.service.sandboxes import Sandboxes
from controlplane.lifecycle.starting.completion import Push
from controlplane.lifecycle.tokens import SigningKey

__all__ = [
    "Activity",
    "Created",
    "Deleted",
    "Dependencies",
    "Egress",
    "Options",
    "Push",
    "RouteBoard",
    "Sandboxes",
    "SigningKey",
    "Subscription",
]
