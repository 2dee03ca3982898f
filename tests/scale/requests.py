"""How many requests the API server has served, by what they were, from its own metrics."""

from __future__ import annotations

import re
from collections import Counter

from tests.cluster.kubectl import kubectl

_LINE = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Of one kind, a hundred pods: less is noise of leases and leaders.
LEAST = 0.05


def served() -> Counter[str]:
    """Since the server began: `POST pods/binding` -> how often."""
    return counted(kubectl("get", "--raw", "/metrics"))


def counted(metrics: str) -> Counter[str]:
    """The same from the text of its metrics; watches are left out, since each counts when it ends."""
    found: Counter[str] = Counter()
    for labels, value in _LINE.findall(metrics):
        told = dict(_LABEL.findall(labels))
        if told["verb"] != "WATCH":
            resource = "/".join(filter(None, (told["resource"], told["subresource"])))
            found[f"{told['verb']} {resource}"] += int(float(value))
    return found


def per_pod(before: Counter[str], after: Counter[str], pods: int) -> dict[str, float]:
    """What was asked for each of so many pods, most first."""
    return {
        what: count / pods
        for what, count in (after - before).most_common()
        if count / pods >= LEAST and not what.endswith("leases")
    }
