"""Queries that panels share. `$N` stands for the selector of the installation, and `$W` for the window of a rate."""

from __future__ import annotations

from collections.abc import Sequence

from boards.model import Query

ENDS, PHASE = "rollbox_sandbox_ends_total", "rollbox_create_phase_seconds"
CREATES, EXECS = "rollbox_creates_total", "rollbox_gateway_exec_ends_total"
INFRA = 'fault=~"capacity|platform"'
MASKED, COLD, WARM, POOLED = 'masked="true",cause!="deleted"', 'start="cold"', 'served="warm"', 'pool!=""'
PARTS, COLD_TOTAL = 'phase!="total",start="cold"', 'phase="total",start="cold"'
OF_ENDS = "samples that RL code leaves out, whatever is at fault (docs/faults.md); a delete by the owner is how sandboxes normally end, and does not count"


def rate(name: str, selector: str = "", by: str = "") -> str:
    """The rate of a counter per second, summed over replicas, or by labels."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({name}{{$N{',' if selector else ''}{selector}}}[$W]))"


def quantile(q: float, name: str, selector: str = "", by: str = "") -> str:
    """A quantile of a histogram over all replicas."""
    return f"histogram_quantile({q}, {rate(name + '_bucket', selector, 'le' + (', ' + by if by else ''))})"


def quantiles(name: str, selector: str = "") -> Sequence[Query]:
    """Median, 90th and 99th percentile."""
    return [Query(quantile(q, name, selector), f"p{100 * q:.0f}") for q in (0.5, 0.9, 0.99)]


def share(part: str, whole: str) -> str:
    """One rate as a part of another; 0 where there is nothing."""
    return f"({part}) / clamp_min({whole}, 1e-9)"


def hourly(name: str, selector: str = "") -> str:
    """How often something has happened in the last hour."""
    return f"sum(increase({name}{{$N{',' if selector else ''}{selector}}}[1h]))"
