"""The chart's rules with a quicker clock: every duration of them is a thirtieth, and nothing else is changed; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

FACTOR: Final = 30
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_DURATION: Final = re.compile(r"(\d+)([smh])\b")
_WINDOW: Final = re.compile(r"\[(\d+[smh])\]")
_BOUND: Final = re.compile(r"> (\d+)\b")
# Whose bounds are ages, and so durations too; all other bounds stay.
AGES: Final = {"RollboxSandboxesStuck"}


def hasty(rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same rules: windows, `for`, the intervals of groups, and bounds that are ages, each divided by ``FACTOR``.

    Names of recordings keep the duration that is in them.
    """
    return {"groups": [_group(one) for one in rules["groups"]]}


def shorter(duration: str) -> str:
    """A duration as Prometheus writes it, divided.

    Raises:
        ValueError: it is none, or too short to be divided into whole seconds.
    """
    found = _DURATION.fullmatch(duration)
    seconds, rest = divmod(int(found[1]) * _SECONDS[found[2]], FACTOR) if found else (0, 0)
    if not seconds or rest:
        raise ValueError(f"{duration} is no whole number of {FACTOR} s")
    return f"{seconds}s"


def _group(group: Mapping[str, Any]) -> Mapping[str, Any]:
    interval = {"interval": shorter(group["interval"])} if "interval" in group else {}
    return {**group, **interval, "rules": [_rule(one) for one in group["rules"]]}


def _rule(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    expression = _WINDOW.sub(lambda found: f"[{shorter(found[1])}]", rule["expr"])
    if rule.get("alert") in AGES:
        expression = _BOUND.sub(lambda found: f"> {int(found[1]) // FACTOR}", expression)
    waits = {"for": shorter(rule["for"])} if "for" in rule else {}
    return {**rule, **waits, "expr": expression}
