"""A benchmark as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rollbox.bench.sample import QUANTILES
from rollbox.printable import printable_lines
from rollbox.report import words
from rollbox.report.text import table

if TYPE_CHECKING:
    from rollbox.bench.measured import BenchReport, Measured, Series
    from rollbox.bench.sample import Sample

HEAD = ("count", *QUANTILES, "max")


def text(report: BenchReport) -> str:
    """Write a benchmark as text; what came from elsewhere is made harmless for terminals."""
    head = f"{report.run}: {words.duration(1000 * report.took_s)}"
    about = [
        *report.platform.items(),
        *report.conditions.items(),
        *((f"client {k}", v) for k, v in report.client.items()),
    ]
    parts = [head, table([(name, value) for name, value in about]), _scenarios(report), _failures(report)]
    parts += [f"  {one.name}: {one.missing}" for one in report.scenarios if one.missing]
    parts.append(f"to repeat it: {report.repeat}")
    return printable_lines("\n\n".join(filter(None, parts))) + "\n"


def cells(series: Series) -> tuple[str, ...]:
    """Write the numbers of a distribution, as `HEAD` names them."""
    sample = series.sample
    count = f"{series.made} of {series.wanted}" if series.made < series.wanted else str(series.made)
    quantiles = (quantile(sample, share) for share in QUANTILES.values())
    return (count, *quantiles, duration(sample.max_ms))


def quantile(sample: Sample, share: float) -> str:
    """Write a quantile; "-" where there are too few calls for it to be one."""
    return duration(sample.quantile(share)) if sample.resolves(share) else "-"


def duration(milliseconds: float) -> str:
    """Write a duration, also that of a call that was not finished."""
    if math.isnan(milliseconds):
        return "-"
    return "unfinished" if math.isinf(milliseconds) else words.duration(milliseconds)


def remarks(series: Series) -> str:
    """Say what the numbers do not: of which kind, how much a second, how late this machine was, what failed."""
    sample, told = series.sample, [", ".join(f"{count} {kind}" for kind, count in series.sample.answers.items())]
    middle_ms = sample.quantile(0.5)
    if series.megabytes and sample.resolves(0.5) and math.isfinite(middle_ms):
        told.append(f"{series.megabytes / middle_ms * 1000:.3g} MB/s at p50")
    if sample.unfinished:
        told.append(f"{sample.unfinished} not over in time")
    if sample.failed:
        told.append(", ".join(f"{count} failed: {code}" for (code, _), count in sample.failed.items()))
    if sample.late_ms >= 1:
        told.append(f"this client late by {words.duration(sample.late_ms)} at most")
    return "; ".join(filter(None, told))


def ratio(measured: Measured) -> str:
    """Say how many times faster the first distribution is than the last one, where that is its baseline."""
    first, last = measured.series[0].sample.quantile(0.5), measured.series[-1].sample.quantile(0.5)
    compared = len(measured.series) > 1 and measured.series[-1].name.startswith("kubectl")
    told = compared and first > 0 and math.isfinite(first) and math.isfinite(last)
    return f"{last / first:.3g} times as long at p50" if told else ""


def rows(report: BenchReport) -> Iterator[tuple[str, Series]]:
    """Return all distributions, each by a name that says its scenario."""
    for one in report.scenarios:
        for series in one.series:
            yield one.name if series is one.series[0] and len(one.series) == 1 else f"{one.name}: {series.name}", series


def _scenarios(report: BenchReport) -> str:
    told = [(name, *cells(series), remarks(series)) for name, series in rows(report)]
    compared = [
        f"  {one.name}: kubectl exec takes {ratio(one)}" for one in report.scenarios if one.series and ratio(one)
    ]
    written = table([("", *HEAD, ""), *told], right=tuple(range(1, 1 + len(HEAD)))) if told else ""
    return "\n\n".join(filter(None, (written, "\n".join(compared))))


def _failures(report: BenchReport) -> str:
    return f"{report.left} sandboxes could not be deleted" if report.left else ""


def failed(report: BenchReport) -> Iterator[tuple[str, str, str, int]]:
    """Return what failed: scenario, code, fault, and how often."""
    for one in report.scenarios:
        for series in one.series:
            for (code, fault), count in series.sample.failed.items():
                yield one.name, code, fault, count
