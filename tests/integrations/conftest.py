"""A run of the hosts' suites ends with a table of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.hosts import HOSTS
from tests.integrations.summary import Tried, changed, pins, table
from tests.support import integrations
from tests.support.junit import read

SUITE, TYPES = "test_the_suite_of_a_host_passes", "test_an_adapter_fits_the_types_of_its_host"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table, if a host was tried."""
    told = {one.nodeid.rpartition("::")[2]: one for one in _reports(terminalreporter)}
    hosts = [_tried(name, told.get(f"{SUITE}[{name}]"), told.get(f"{TYPES}[{name}]")) for name in HOSTS]
    seen = [one for one in hosts if one is not None]
    if seen:
        terminalreporter.section(f"hosts, in the {integrations.CHOSEN} versions")
        for line in table(seen):
            terminalreporter.write_line(line)


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    """One of each test; of one that has failed and whose end has failed too, the last."""
    for outcome in ("passed", "skipped", "failed", "error"):
        yield from (one for one in terminalreporter.stats.get(outcome, ()) if isinstance(one, pytest.TestReport))


def _tried(name: str, suite: pytest.TestReport | None, types: pytest.TestReport | None) -> Tried | None:
    ran = suite or types
    if ran is None:
        return None
    if ran.skipped:
        return Tried(HOSTS[name].title, left_out=_words(ran).removeprefix("Skipped: "))
    file = integrations.record_of(name)
    record = read(file.read_text()) if suite is not None and file.is_file() else None
    there, pinned = integrations.frozen(name), pins(integrations.pinned(name))
    return Tried(
        HOSTS[name].title,
        record,
        pinned.get(HOSTS[name].distribution, ("",))[-1],
        types.passed if types else None,
        "\n".join(_words(one) for one in (suite, types) if one and one.failed and not (one is suite and record)),
        newer=changed(pins(there), pinned),
    )


def _words(report: pytest.TestReport) -> str:
    """Why a test has failed or was skipped, without where."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext)
