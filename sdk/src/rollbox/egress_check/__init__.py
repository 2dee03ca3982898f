"""Tries, from inside a sandbox, what egress must refuse and what must work: `rollbox doctor`, and the chart's test.

`program` runs in the sandbox, with the standard library alone; `judged` says what that means, and is pure; `sandboxed`
creates the sandbox and switches its policy. On a cluster the doctor has a pod run `python -m rollbox.egress_check`.
"""

from rollbox.egress_check.judged import Found
from rollbox.egress_check.sandboxed import check
from rollbox.egress_check.tries import METADATA, Place

__all__ = ["METADATA", "Found", "Place", "check"]
