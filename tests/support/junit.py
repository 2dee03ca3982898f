"""What the tests of a run did, from a file that pytest writes with `--junitxml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

# What a test counts for that tries a whole set of things: a property that it records.
CASES: Final = "cases"
# How the reason begins of a test that is skipped for good.
NOT_SUPPORTED: Final = "not supported: "
# Whom a test has tried, where the tests of a run are of several: a property too.
CLIENT: Final = "client"
# What a test has seen refused, or not there, as a table says it: a property too.
REFUSED: Final = "not_supported"
_TROUBLES: Final = ("failure", "error", "skipped")


@dataclass(frozen=True)
class Test:
    """A test that ran.

    Attributes:
        module: its last name alone, without that of a class in it.
        name: with its parameters.
        outcome: passed, failed or skipped.
        said: why it did not pass.
        cases: how many things it has tried with success.
        client: whom it tried, where it says so.
        not_supported: what it has seen refused, or not there.
    """

    __test__ = False

    module: str
    name: str
    outcome: str
    said: str = ""
    cases: int = 1
    client: str = ""
    not_supported: str = ""


@dataclass(frozen=True)
class Record:
    """A run.

    Attributes:
        name: of the suite.
        when: it began, as ISO 8601 has it.
        tests: in their order.
    """

    name: str
    when: str
    tests: tuple[Test, ...]


def read(text: str) -> Record:
    """Read a record.

    Raises:
        xml.etree.ElementTree.ParseError: it is none.
    """
    root = ElementTree.fromstring(text)
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    if suite is None:
        return Record("", "", ())
    return Record(suite.get("name", ""), suite.get("timestamp", ""), tuple(map(_test, suite.iter("testcase"))))


def read_all(folder: Path) -> Mapping[str, Record]:
    """The records of a folder, by the names of their files."""
    return {file.stem: read(file.read_text()) for file in folder.glob("*.xml")}


def _test(case: ElementTree.Element) -> Test:
    troubles = [child for child in case if child.tag in _TROUBLES]
    failed = any(one.tag != "skipped" for one in troubles)
    properties = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
    return Test(
        module=_module(case.get("classname", "")),
        name=case.get("name", ""),
        outcome="failed" if failed else "skipped" if troubles else "passed",
        said="\n".join((one.text if failed else one.get("message")) or "" for one in troubles),
        # To see that something is not there is no success of a client.
        cases=int(properties.get(CASES, REFUSED not in properties)),
        client=properties.get(CLIENT, ""),
        not_supported=properties.get(REFUSED, ""),
    )


def _module(classname: str) -> str:
    """The module of pytest's name of a module, behind which that of a class may stand."""
    names = classname.split(".")
    return next((name for name in reversed(names) if name.startswith("test_")), names[-1])
