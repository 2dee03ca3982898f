"""The table of hosts: what it says of a run, what a later run replaces, and that the page has it as it is written."""

from __future__ import annotations

import pytest

from tests.integrations import results
from tests.integrations.hosts import ADAPTER, HOSTS
from tests.support.junit import Record, Test, read
from tests.support.marked import inside
from tests.support.result_table import OLDEST, Row, Seen, parsed, rendered, renewed, result

XML = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="0.26.0" tests="4" timestamp="2026-11-30T05:52:17+00:00">
<testcase classname="on_harbor.test_oracle" name="test_an_agent[oracle]">
  <properties><property name="cases" value="10" /></properties></testcase>
<testcase classname="on_harbor.test_truth" name="test_a"><failure message="short">all of it</failure></testcase>
<testcase classname="on_harbor.test_truth.TestB" name="test_b"><skipped message="not supported: no | users">at</skipped>
</testcase>
<testcase classname="on_harbor.test_truth" name="test_c" />
</testsuite></testsuites>"""
PAGE = f"before\n<!-- {results.MARK}: begin -->\n{rendered([], 'host')}<!-- {results.MARK}: end -->\nafter\n"


def test_a_record_says_what_each_test_did() -> None:
    record = read(XML)
    assert (record.name, record.when) == ("0.26.0", "2026-11-30T05:52:17+00:00")
    assert record.tests == (
        Test("test_oracle", "test_an_agent[oracle]", "passed", cases=10),
        Test("test_truth", "test_a", "failed", "all of it"),
        Test("test_truth", "test_b", "skipped", "not supported: no | users"),
        Test("test_truth", "test_c", "passed"),
    )


def test_the_page_says_what_passed_what_failed_and_what_is_not_supported() -> None:
    page = results.filled(PAGE, {"harbor-gvisor": read(XML)})
    program, adapter = parsed(inside(page, results.MARK))
    assert (program.program, program.version, program.seen) == ("Harbor", "0.26.0", {"gVisor": "10 passed"})
    assert adapter.what == ADAPTER
    assert adapter.seen == {"gVisor": r"1 passed; **1 failed**: `test_a`; 1 not supported: no \| users"}
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")


def test_a_table_is_read_as_it_was_written() -> None:
    rows = [
        Row("a", "1", "x", {"engine": "1 passed"}),
        Row("a", "1", "y", {"engine": "2 passed", "gVisor": "2 passed"}),
        Row("a", f"0{OLDEST}", "y", {"gVisor": "2 passed"}),
        Row("b", "1", "y", {"engine": r"1 passed; 1 not supported: a \| b"}),
    ]
    assert parsed(rendered(rows, "host")) == rows
    with pytest.raises(ValueError, match="no row"):
        parsed(rendered(rows, "host") + "| of | another | table |\n")


def record(version: str, when: str = "", *names: str) -> Record:
    return Record(version, when, tuple(Test("test_executor", name, "passed") for name in names or ("test_a",)))


def table(page: str) -> list[tuple[str, str, dict[str, str]]]:
    return [(row.program, row.version, dict(row.seen)) for row in parsed(inside(page, results.MARK))]


def test_what_was_seen_elsewhere_and_of_other_hosts_stays() -> None:
    page = results.filled(PAGE, {"smolagents-gvisor": record("1"), "openenv-gvisor": record("2")})
    page = results.filled(page, {"smolagents-engine": record("1", "", "test_a", "test_b")})
    assert table(page) == [
        ("OpenEnv", "2", {"gVisor": "1 passed"}),
        ("smolagents", "1", {"engine": "2 passed", "gVisor": "1 passed"}),
    ]


def test_another_version_replaces_what_was_seen_and_the_oldest_is_beside_it() -> None:
    page = results.filled(PAGE, {"smolagents-gvisor": record("1"), "smolagents-oldest-engine": record("0")})
    page = results.filled(
        page, {"smolagents-engine": record("2", "2026-02"), "smolagents-gvisor": record("1", "2026-01")}
    )
    assert table(page) == [
        ("smolagents", "2", {"engine": "1 passed"}),
        ("smolagents", f"0{OLDEST}", {"engine": "1 passed"}),
    ]


def test_a_row_that_no_run_has_any_more_leaves_the_table() -> None:
    rows = [
        Row("a", "1", "x", {"engine": "1 passed"}),
        Row("a", "1", "y", {"engine": "1 passed", "gVisor": "1 passed"}),
    ]
    run = Seen("a", "1", "engine", {"z": "3 passed"})
    assert [(row.what, dict(row.seen)) for row in renewed(rows, [run], ["a"])] == [
        ("z", {"engine": "3 passed"}),
        ("y", {"gVisor": "1 passed"}),
    ]


@pytest.mark.parametrize("name", ["mcp-newest-engine", "strangers-engine", "mcp-moon", "mcp"])
def test_a_record_of_something_else_says_nothing(name: str) -> None:
    assert results.filled(PAGE, {name: record("1")}) == PAGE
    assert results.filled(PAGE, {"mcp-engine": Record("", "", ())}) == PAGE


def test_a_failure_is_named_once_with_how_often() -> None:
    tests = [Test("m", f"test_a[{number}]", "failed") for number in range(3)]
    assert result(tests) == "0 passed; **3 failed**: `test_a`"


def test_the_page_has_the_table_as_it_is_written() -> None:
    page = results.PAGE.read_text()
    rows = parsed(inside(page, results.MARK))
    assert results.filled(page, {}) == page
    assert {row.program for row in rows} <= {host.title for host in HOSTS.values()}
    declared = {host.title: {*host.programs.values(), ADAPTER} for host in HOSTS.values()}
    assert [row for row in rows if row.what not in declared[row.program]] == []
    assert [row for row in rows if not row.seen] == []
