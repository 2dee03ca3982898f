"""The two tables of the guide's page "Under gVisor", of the newest run of each scenario; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.bench.gvisor.sizes import WITHOUT
from tests.support.marked import between

Run = Mapping[str, Any]
# A table is between two such marks on the page.
MARKS: Final = {"gvisor_speed": "speed", "gvisor_sizes": "sizes"}


def filled(page: str, scenarios: Mapping[str, list[Run]]) -> str:
    """The page with the tables of what was measured; others stay.

    Raises:
        ValueError: the page has no place for one.
    """
    for scenario, mark in MARKS.items():
        if runs := scenarios.get(scenario):
            page = between(page, mark, TABLES[scenario](runs[-1]))
    return page


def speed(run: Run) -> str:
    """How many times longer than under runc each work takes in gVisor."""
    rows = ["| work | under runc | in gVisor | times |", "|---|---|---|---|"]
    for one in run["figures"]:
        runc, gvisor = one["baseline"]["value"], one["value"]
        cells = (one["figure"], f"{_short(runc)} ms", f"{_short(gvisor)} ms", _short(gvisor / runc))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join((*rows, "", _provenance(run))) + "\n"


def sizes(run: Run) -> str:
    """What each program sees on both, and what it would see without the variables."""
    found = {one["figure"]: one for one in run["figures"]}
    head = "| what the program sees | runc | gVisor | runc, without the variables | gVisor, without the variables |"
    rows = [head, "|---|---|---|---|---|"]
    for name, one in found.items():
        if not name.endswith(WITHOUT):
            bare = found.get(f"{name}{WITHOUT}")
            cells = (name, *_both(one), *(_both(bare) if bare else ("", "")))
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join((*rows, "", _provenance(run))) + "\n"


TABLES: Final = {"gvisor_speed": speed, "gvisor_sizes": sizes}


def _both(one: Mapping[str, Any]) -> tuple[str, str]:
    runc, gvisor = (f"{value:.0f} {one['unit']}".strip() for value in (one["baseline"]["value"], one["value"]))
    return runc, gvisor


def _short(value: float) -> str:
    """Two digits that count, without an exponent."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _provenance(run: Run) -> str:
    machine, versions = run["hardware"], run["versions"]
    where = f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_mib']} MiB, Linux {machine['kernel']}"
    return (
        f"Measured on {run['measured'][:10]}, {where}, {', '.join(f'{name} {one}' for name, one in versions.items())}."
    )
