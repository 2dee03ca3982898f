"""Network policies of running sandboxes: which egress replica has which, what is in force, what was attempted."""

from controlplane.lifecycle.egress.assignments import EgressAssignments
from controlplane.lifecycle.egress.egress import Egress
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.lifecycle.egress.reports import Reports

__all__ = ["Egress", "EgressAssignments", "PolicyStore", "Reports"]
