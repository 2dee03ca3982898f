"""A plugin of pytest: writes one line of JSON for each test, with what it said, to the file of `--record`.

JUnit's XML, which pytest can write, has no name by which a test could be run again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

OUTPUT_CHARACTERS = 8_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", default=None, help="the file for one line of JSON a test")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--record")
    # With several processes, the one that has them hears of every test.
    if path and not hasattr(config, "workerinput"):
        Path(path).write_text("")
        config.pluginmanager.register(_Recorder(Path(path)))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed", f"{report.longreprtext}\n{report.capstdout}{report.capstderr}")
        elif report.skipped:
            self._write(report.nodeid, "skipped", _reason(report))
        elif report.when == "call":
            self._write(report.nodeid, "passed", "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed", report.longreprtext)

    def _write(self, name: str, outcome: str, output: str) -> None:
        line = {"name": name, "outcome": outcome, "output": output[-OUTPUT_CHARACTERS:]}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
