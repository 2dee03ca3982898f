"""Processes of a sandbox. Layers, lowest first: frames < streams < link < handle < listing."""

from rollbox.process.handle import Process
from rollbox.process.listing import ExecSummary, Processes
from rollbox.process.streams import Gap, OutputStream, StdinWriter

__all__ = ["ExecSummary", "Gap", "OutputStream", "Process", "Processes", "StdinWriter"]
