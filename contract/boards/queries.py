"""Queries that panels share. `$N` stands for the selector of the installation, and `$W` for the window of a rate."""

from __future__ import annotations

from collections.abc import Sequence

from boards.model import Query

ENDS, PHASE = "rollbox_sandbox_ends_total", "rollbox_create_phase_seconds"
CREATES, EXECS = "rollbox_creates_total", "rollbox_gateway_exec_ends_total"
INFRA, NOT_DELETED = 'fault=~"capacity|platform"', 'cause!="deleted"'
MASKED, COLD, WARM, POOLED = 'masked="true",cause!="deleted"', 'start="cold"', 'served="warm"', 'pool!=""'
PARTS, COLD_TOTAL = 'phase!="total",start="cold"', 'phase="total",start="cold"'
OF_ENDS = "samples that RL code leaves out, whatever is at fault (docs/faults.md); a delete by the owner is how sandboxes normally end, and does not count"


def rate(name: str, selector: str = "", by: str = "") -> str:
    """The rate of a counter per second, summed over replicas, or by labels."""
    return f"{_sum(by)} (rate({name}{{{_with(selector)}}}[$W]))"


def quantile(q: float, name: str, selector: str = "", by: str = "") -> str:
    """A quantile of a histogram over all replicas."""
    return f"histogram_quantile({q}, {rate(name + '_bucket', selector, 'le' + (', ' + by if by else ''))})"


def quantiles(name: str, selector: str = "") -> Sequence[Query]:
    """Median, 90th and 99th percentile."""
    return [Query(quantile(q, name, selector), f"p{100 * q:.0f}") for q in (0.5, 0.9, 0.99)]


def each(name: str, selector: str = "", by: str = "") -> str:
    """A gauge that each replica tells of itself, summed over replicas."""
    return f"{_sum(by)} ({name}{{{_with(selector)}}})"


def whole(name: str, selector: str = "", by: str = "") -> str:
    """A gauge that every replica, or one of them, tells of its whole installation, summed over installations."""
    return f"{_sum(by)} (max by (namespace{', ' if by else ''}{by}) ({name}{{{_with(selector)}}}))"


def share(part: str, of: str, many: bool = False) -> str:
    """One figure as a part of another; nothing where that is 0, since an empty graph misleads nobody.

    Args:
        part: with the same labels as `of`, unless `many`.
        of: what it is a part of.
        many: whether `part` has series by labels that `of` has not.
    """
    return f"{part} / {'on () group_left () ' if many else ''}({of} > 0)"


def mean(name: str, selector: str = "", by: str = "") -> str:
    """The mean of a histogram: its sum by its own count, since other counters may stand still while it moves."""
    return share(rate(name + "_sum", selector, by), rate(name + "_count", selector, by))


def hourly(name: str, selector: str = "") -> str:
    """How often something has happened in the last hour."""
    return f"sum(increase({name}{{{_with(selector)}}}[1h]))"


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"


def _with(selector: str) -> str:
    return f"$N,{selector}" if selector else "$N"
