"""The scaler: adds and removes nodes as ``controlplane.scaling`` decides, at one replica at a time."""

from controlplane.lifecycle.scaling.report import ScalerReport, read_report
from controlplane.lifecycle.scaling.scaler import EVERY_S, NOTE, Scaler

__all__ = ["EVERY_S", "NOTE", "Scaler", "ScalerReport", "read_report"]
