"""Processes of a sandbox. Layers, lowest first: frames < streams < connection < stdin < handle < listing."""

from rollbox.process.handle import Process
from rollbox.process.listing import ExecSummary, Processes
from rollbox.process.stdin import StdinWriter
from rollbox.process.streams import Gap, OutputStream

__all__ = ["ExecSummary", "Gap", "OutputStream", "Process", "Processes", "StdinWriter"]
