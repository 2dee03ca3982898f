"""What the tests of the promises did, counted by promise, and the table of the page. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from tests.security.promises import Promise

BEGIN: Final = "<!-- tried: made by `python -m tests.security --page` -->\n"
END: Final = "<!-- /tried -->\n"
_PLACES: Final = ("engine", "cluster")


@dataclass(frozen=True)
class Case:
    """One case of a test.

    Attributes:
        file: of the test, from the root; of Rust and Go the folder that the test is below.
        name: of the test, without its parameters.
        outcome: "passed", "failed" or "skipped".
    """

    file: str
    name: str
    outcome: str


def of_pytest(report: str) -> list[Case]:
    """The cases of a report in JUnit's form."""
    cases = ET.fromstring(report).iter("testcase")
    return [
        Case(_file(one.get("classname", "")), one.get("name", "").partition("[")[0], _outcome(one)) for one in cases
    ]


def of_native(lines: Iterable[Mapping[str, str]]) -> list[Case]:
    """The cases in the records of `tests.levels.rust` and `tests.levels.go`."""
    found = []
    for one in lines:
        binary = one.get("binary", one.get("package", ""))
        found.append(Case(binary, re.split(r"::|/", one["name"])[-1], one["outcome"]))
    return found


def counted(told: Iterable[Promise], cases: Iterable[Case]) -> dict[str, dict[str, int]]:
    """How many attacks on each promise were tried, and how many succeeded; without one that ran there is no entry."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.name, []).append(case)
    tally = {}
    for promise in told:
        own = [case for file, name in promise.tests for case in by_name.get(name, ()) if _of(file, case)]
        tried = [case for case in own if case.outcome != "skipped"]
        if tried:
            tally[promise.says] = {"tried": len(tried), "succeeded": sum(case.outcome == "failed" for case in tried)}
    return tally


def missing(told: Iterable[Promise], cases: Iterable[Case], run: Iterable[str]) -> list[str]:
    """The tests of the files that begin with one of `run`, of which no case is there: they did not run."""
    ran = [*cases]
    begins = tuple(run)
    wanted = {(file, name) for promise in told for file, name in promise.tests if file.startswith(begins)}
    return sorted(
        f"{file}::{name}" for file, name in wanted if not any(case.name == name and _of(file, case) for case in ran)
    )


def page(text: str, told: Iterable[Promise], tallies: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """The page with the table anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = [
        f"| {promise.says} | {' | '.join(_cell(tallies, place, promise) for place in _PLACES)} |" for promise in told
    ]
    totals = " | ".join(_total(tallies.get(place, {})) for place in _PLACES)
    table = ["| promise | on an engine | on a cluster |", "| --- | --- | --- |", *rows, f"| **all** | {totals} |"]
    return head + BEGIN + "\n".join(table) + "\n" + END + tail


def _cell(tallies: Mapping[str, Mapping[str, Mapping[str, int]]], place: str, promise: Promise) -> str:
    found = tallies.get(place, {}).get(promise.says)
    return "" if found is None else f"{found['tried']} / {found['succeeded']}"


def _total(tally: Mapping[str, Mapping[str, int]]) -> str:
    if not tally:
        return ""
    return "**{} / {}**".format(*(sum(one[kind] for one in tally.values()) for kind in ("tried", "succeeded")))


def _of(file: str, case: Case) -> bool:
    return case.file == file if file.endswith(".py") else not case.file.endswith(".py")


def _file(classname: str) -> str:
    return classname.replace(".", "/") + ".py"


def _outcome(case: ET.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"
