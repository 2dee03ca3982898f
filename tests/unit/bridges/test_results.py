"""The tables of the bridges' clients: what they say of a run, which rows stay, and that the pages have them so."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.bridges import results, test_e2b_programs, test_prime_live
from tests.bridges.published import CLIENTS, PAGES, ROOT, Client
from tests.bridges.running import HERE
from tests.support.junit import Record, Test, read
from tests.support.marked import inside
from tests.support.result_table import parsed, rendered

XML = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" timestamp="2026-11-30T05:52:17+00:00">
<testcase classname="tests.bridges.test_fusion_clients" name="test_a[sync-printed]">
  <properties><property name="client" value="sandbox-fusion-0.3.7" /></properties></testcase>
<testcase classname="tests.bridges.test_fusion_clients" name="test_a[sync-datasets]">
  <properties><property name="client" value="sandbox-fusion-0.3.7" />
  <property name="not_supported" value="data sets" /></properties></testcase>
<testcase classname="tests.bridges.test_fusion_clients" name="test_a[async-datasets]">
  <properties><property name="client" value="sandbox-fusion-0.3.7" />
  <property name="not_supported" value="data sets" /></properties></testcase>
<testcase classname="tests.bridges.test_fusion_clients" name="test_b[ran]">
  <properties><property name="client" value="tinker-cookbook-0.6.1" /></properties>
  <failure message="short">all of it</failure></testcase>
<testcase classname="tests.bridges.test_fusion_bridge" name="test_c" />
</testsuite></testsuites>"""
PAGE = f"before\n<!-- fusion: begin -->\n{rendered([], 'client')}<!-- fusion: end -->\nafter\n"
FUSION, TINKER = CLIENTS["sandbox-fusion-0.3.7"], CLIENTS["tinker-cookbook-0.6.1"]


def rows(page: str) -> list[tuple[str, str, str, dict[str, str]]]:
    return [(row.program, row.version, row.what, dict(row.seen)) for row in parsed(inside(page, "fusion"))]


def row(client: Client, **seen: str) -> tuple[str, str, str, dict[str, str]]:
    return client.title, client.version, client.what, seen


def record(*outcomes: str, when: str = "", **of: Any) -> Record:
    tests = tuple(Test("m", "test_a", one, **{"client": "sandbox-fusion-0.3.7", **of}) for one in outcomes)
    return Record("pytest", when, tests)


def test_each_client_of_a_run_has_its_row_and_what_is_not_supported_is_named_once() -> None:
    page = results.filled(PAGE, "fusion", {"bridges-gvisor": read(XML)})
    assert rows(page) == [
        row(FUSION, gVisor="1 passed; not supported: data sets"),
        row(TINKER, gVisor="0 passed; **1 failed**: `test_b`"),
    ]


def test_a_test_of_several_cases_counts_them_beside_what_is_not_supported() -> None:
    page = results.filled(PAGE, "fusion", {"a-engine": record("passed", cases=9, not_supported="a limit")})
    assert rows(page) == [row(FUSION, engine="9 passed; not supported: a limit")]


def test_what_failed_is_not_told_as_not_supported() -> None:
    page = results.filled(PAGE, "fusion", {"a-engine": record("failed", not_supported="a limit")})
    assert rows(page) == [row(FUSION, engine="0 passed; **1 failed**: `test_a`")]


def test_a_run_without_what_a_client_needs_leaves_its_row_as_it_was() -> None:
    page = results.filled(PAGE, "fusion", {"a-engine": record("passed")})
    assert results.filled(page, "fusion", {"a-engine": record("skipped", when="2026-12-01")}) == page


def test_the_last_run_of_a_place_counts_and_the_other_place_stays() -> None:
    page = results.filled(PAGE, "fusion", {"bridges-gvisor": read(XML)})
    later = {"b-engine": record("passed", when="2026-12-02"), "a-engine": record("passed", "passed", when="2026-12-01")}
    assert rows(results.filled(page, "fusion", later)) == [
        row(FUSION, engine="1 passed", gVisor="1 passed; not supported: data sets"),
        row(TINKER, gVisor="0 passed; **1 failed**: `test_b`"),
    ]


def test_a_client_or_a_version_that_runs_no_more_leaves_the_table_and_words_are_the_newest() -> None:
    page = results.filled(PAGE, "fusion", {"bridges-gvisor": read(XML)})
    page = page.replace(f"| {TINKER.version} |", "| 0.1 |").replace(FUSION.what, "less")
    assert rows(results.filled(page, "fusion", {})) == [row(FUSION, gVisor="1 passed; not supported: data sets")]


# Where a client is pinned that has no list of its own, and as what.
LISTED = {
    "e2b-code-interpreter-2.8.1": (HERE / "requirements/openai-agents-0.24.0.txt", "e2b-code-interpreter"),
    "prime-sandboxes-tests": (HERE / "requirements/prime-sandboxes-tests.txt", "prime-sandboxes"),
    "mini-swe-agent": (ROOT / "requirements/integrations/mini_swe_agent.txt", "mini-swe-agent"),
}
IN_JAVASCRIPT = {"npm": "e2b", "ai": "ai"}


@pytest.mark.parametrize("name", [name for name in CLIENTS if name not in (*IN_JAVASCRIPT, "slime")])
def test_the_version_of_a_client_is_the_one_that_is_installed_and_pinned_with_digests(name: str) -> None:
    version = CLIENTS[name].version.partition(",")[0]
    file, distribution = LISTED.get(name, (HERE / f"requirements/{name}.txt", name.rpartition("-")[0]))
    pinned = file.read_text()
    assert re.search(rf"^{distribution}=={re.escape(version)} ", pinned, re.MULTILINE)
    assert "--hash=sha256:" in pinned


def test_the_versions_of_clients_in_javascript_are_those_that_are_installed() -> None:
    wanted = json.loads((HERE / "requirements/npm/package.json").read_text())["dependencies"]
    assert {IN_JAVASCRIPT[name]: CLIENTS[name].version for name in IN_JAVASCRIPT}.items() <= wanted.items()


def test_slimes_version_is_that_of_the_tests() -> None:
    assert CLIENTS["slime"].version == test_e2b_programs.SLIME_COMMIT[:8]


def test_the_live_tests_of_primes_client_are_those_of_the_commit() -> None:
    client = CLIENTS[test_prime_live.CLIENT]
    assert client.version.endswith(f", at {test_prime_live.COMMIT[:7]}")
    assert client.title == f"its own {sum(test_prime_live.FILES.values())} live tests"


@pytest.mark.parametrize("bridge", PAGES)
def test_a_page_has_the_table_as_it_is_written(bridge: str) -> None:
    page = PAGES[bridge].read_text()
    assert results.filled(page, bridge, {}) == page
    assert parsed(inside(page, bridge)) != []
