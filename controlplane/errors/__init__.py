"""``Problem``, the error type of every boundary, and the generated table of error codes. No I/O here."""

from controlplane.errors.near import meant
from controlplane.errors.problem import Problem
from controlplane.errors.table import TABLE, Code, Entry, Fault, Retry

__all__ = ["TABLE", "Code", "Entry", "Fault", "Problem", "Retry", "meant"]
