"""Metrics, with labels from fixed sets (never a sandbox id), and log lines."""

from controlplane.telemetry.complaint import complain
from controlplane.telemetry.levels import POOLED, Levels, QuotaLevels
from controlplane.telemetry.log import configure_log
from controlplane.telemetry.metrics import Metrics
from controlplane.telemetry.table import (
    AuditLost,
    FullReason,
    PushOutcome,
    RefusedCall,
    Role,
    Room,
    ScalerStep,
    Served,
    Start,
    Waited,
)

__all__ = [
    "POOLED",
    "AuditLost",
    "FullReason",
    "Levels",
    "Metrics",
    "PushOutcome",
    "QuotaLevels",
    "RefusedCall",
    "Role",
    "Room",
    "ScalerStep",
    "Served",
    "Start",
    "Waited",
    "complain",
    "configure_log",
]
