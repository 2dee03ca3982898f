"""A benchmark as one HTML page: without scripts, and it loads nothing. Pure; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from rollbox.bench import text
from rollbox.report import frame, plots, words

if TYPE_CHECKING:
    from rollbox.bench.measured import BenchReport, Measured, Series

_HOW = (
    "Shares, not means. A quantile stands only where there are calls enough for it to be one: 100 for p99, 1,000 for "
    "p99.9. In open loops (staggered, bursts, Poisson) a create is counted from when it was due, whether earlier ones "
    "were answered or not; one that was not over in time counts as longer than all others. Retries of the SDK are in "
    "the time of their call."
)


def page(report: BenchReport) -> str:
    """Write a benchmark as a page."""
    sub = f"{words.duration(1000 * report.took_s)} from {frame.clock(report.began_at_ms)}"
    sections = [
        ("All scenarios", f'<p class="sub">{_HOW}</p>{_numbers(text.rows(report))}'),
        *((f"{one.name}: {one.says}", _scenario(one)) for one in report.scenarios),
        ("The installation", _pairs(report.platform)),
        ("The machine that measured", _pairs(report.client)),
        ("Conditions", _pairs(report.conditions)),
        ("To repeat it", f'<p><code>{escape(report.repeat)}</code></p><p class="sub">{_repeat(report)}</p>'),
    ]
    return frame.document(f"rollbox {report.run}", sub, _cards(report), sections)


def _cards(report: BenchReport) -> str:
    series = [one for scenario in report.scenarios for one in scenario.series if not one.part]
    failed = sum(count for *_, count in text.failed(report))
    told: list[tuple[str, object, bool]] = [("scenarios", sum(bool(one.series) for one in report.scenarios), False)]
    told += [("calls", sum(one.made for one in series), False), ("failed", failed, bool(failed))]
    unfinished = sum(one.sample.unfinished for one in series)
    told += [("not over in time", unfinished, True)] if unfinished else []
    told += [("sandboxes left", report.left, True)] if report.left else []
    return frame.cards(told)


def _scenario(measured: Measured) -> str:
    missing = f'<p class="sub">{escape(measured.missing)}</p>' if measured.missing else ""
    if not measured.series:
        return missing
    tails = {one.name: one.sample.tail() for one in measured.series}
    compared = text.ratio(measured)
    told = f"<p>kubectl exec takes {escape(compared)}.</p>" if compared else ""
    notes = dict.fromkeys(f"{one.name}: {one.note}" for one in measured.series if one.note)
    note = f'<p class="sub">{escape("; ".join(notes))}</p>'
    numbers = _numbers((one.name, one) for one in measured.series)
    return f"{note}{numbers}{told}{missing}{plots.histogram(tails)}{plots.distributions(tails)}"


def _numbers(rows: Iterable[tuple[str, Series]]) -> str:
    head = "".join(f'<th class="n">{name}</th>' for name in text.HEAD)
    told = [
        f"<tr><td>{escape(name)}</td>"
        + "".join(f'<td class="n">{escape(cell)}</td>' for cell in text.cells(series))
        + f'<td class="said">{escape(text.remarks(series))}</td></tr>'
        for name, series in rows
    ]
    return f'<div class="scroll"><table><tr><th></th>{head}<th></th></tr>{"".join(told)}</table></div>' if told else ""


def _pairs(told: Mapping[str, str]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in told.items())
    return f"<table>{''.join(rows)}</table>" if told else ""


def _repeat(report: BenchReport) -> str:
    return (
        "The same command, against the same installation: the number of calls, the times of all arrivals (the random "
        "ones too, which have a fixed seed) and the order of the scenarios are the same. While the platform keeps the "
        f"records of what has ended, rollbox why --run {escape(report.run)} has the phases of these creates."
    )
