"""Metrics, with labels from fixed sets (never a sandbox id), and log lines."""

from controlplane.telemetry.complaint import complain
from controlplane.telemetry.log import configure_log
from controlplane.telemetry.metrics import POOLED, Levels, Metrics, PushOutcome, Served

__all__ = ["POOLED", "Levels", "Metrics", "PushOutcome", "Served", "complain", "configure_log"]
