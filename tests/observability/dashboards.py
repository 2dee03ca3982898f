"""The queries of the dashboards, from the JSON that Grafana gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.installed import ROOT

FOLDER: Final = ROOT / "helm/files/dashboards"


@dataclass(frozen=True)
class Shown:
    """One panel: its queries and legends."""

    title: str
    unit: str
    kind: str
    stacked: bool
    log: bool
    queries: Sequence[tuple[str, str]]


def documents() -> Mapping[str, Any]:
    """Name -> JSON."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(document: Any, namespace: str = ".*", window: str = "20s") -> Iterator[Shown]:
    """Its panels, with the variables put in as Grafana does."""
    for panel in document["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        yield Shown(
            panel["title"],
            defaults.get("unit", "short"),
            panel["type"],
            defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
            defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "symlog",
            [
                (
                    target["expr"].replace("$namespace", namespace).replace("$__rate_interval", window),
                    target["legendFormat"],
                )
                for target in panel["targets"]
            ],
        )
