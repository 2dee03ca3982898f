"""The records as a person reads them."""

from __future__ import annotations

from rich.table import Table

from tests.bench.record import Record


def table(records: list[Record]) -> Table:
    """What a person reads."""
    out = Table("figure", "value", "baseline", "ratio", "target", "met")
    for r in records:
        baseline = f"{r.baseline.value:.3f} ({r.baseline.what})" if r.baseline else ""
        ratio = f"{r.ratio:.2f}x" if r.ratio is not None else ""
        met = {None: "", True: "yes", False: "[bold red]NO[/]"}[r.met]
        out.add_row(r.figure, f"{r.value:.3f} {r.unit}", baseline, ratio, r.target, met)
    return out
