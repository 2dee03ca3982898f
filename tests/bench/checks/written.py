"""What a page of figures and a README say, against what is declared."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.declared import Declared, all_declared, declared
from tests.bench.figures import BEGIN, END, headline_target, target_text


def differences(page: str, readme: str) -> list[str]:
    """Where they differ from `figures.toml`, or the README from the page; empty: nowhere."""
    found, seen = [], {}
    for scenario, (figure, statistic, value, against, target, met) in _rows_of(page):
        try:
            what = declared(scenario, figure)
        except KeyError as error:
            found.append(error.args[0])
            continue
        if (statistic, target) != (what.statistic, target_text(what)):
            found.append(f"the page says of {figure!r}: {statistic!r}, {target!r}; declared: {what}")
        if what.headline:
            seen[what.headline] = [what.headline, "; ".join(filter(None, (value, against))), headline_target(what, met)]
    told = list(_cells(readme.partition(BEGIN)[2].partition(END)[0]))
    wanted = [seen.get(what.headline, [what.headline, "(not on the page)"]) for what in _headlines()]
    return found if told == wanted else [*found, f"the README says {told}; the page and the declarations: {wanted}"]


def _headlines() -> list[Declared]:
    return [what for figures in all_declared().values() for what in figures.values() if what.headline]


def _rows_of(page: str) -> Iterator[tuple[str, list[str]]]:
    for section in page.split("\n## ")[1:]:
        for cells in _cells(section):
            yield section.partition("\n")[0], cells


def _cells(text: str) -> Iterator[list[str]]:
    """Of the rows of its tables, without their heads."""
    lines = (line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| figure |"))
    yield from ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
