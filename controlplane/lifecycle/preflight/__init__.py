"""Preflight: compares what a run needs with quotas and capacity before it begins. ``arithmetic`` is pure."""

from controlplane.lifecycle.preflight.arithmetic import Blocker, Forecast, Need
from controlplane.lifecycle.preflight.inputs import Preflight

__all__ = ["Blocker", "Forecast", "Need", "Preflight"]
