"""Network policies of running sandboxes: which egress replica has which, what is in force, what was attempted."""

from controlplane.lifecycle.egress.board import EgressBoard
from controlplane.lifecycle.egress.egress import Egress
from controlplane.lifecycle.egress.reports import Reports
from controlplane.lifecycle.egress.shelf import Shelf

__all__ = ["Egress", "EgressBoard", "Reports", "Shelf"]
