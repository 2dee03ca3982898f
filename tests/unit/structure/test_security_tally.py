"""How attacks are counted by promise."""

from __future__ import annotations

from tests.security.promises import Promise
from tests.security.tally import Case, counted, missing, of_native, of_pytest, page

KEYS, READY, NATIVE = "tests/product/test_keys.py", "tests/e2e/test_ready.py", "sidecar/src/auth.rs"
TOLD = [
    Promise("keys hold", ((KEYS, "test_a"), (NATIVE, "only_a")), ""),
    Promise("readiness holds", ((READY, "test_a"),), ""),
]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.product.test_keys" name="test_a[one]"/>
<testcase classname="tests.product.test_keys" name="test_a[two]"><failure/></testcase>
<testcase classname="tests.product.test_keys" name="test_a[three]"><skipped/></testcase>
</testsuite></testsuites>"""


def test_each_case_is_an_attack_and_a_failed_one_has_succeeded() -> None:
    native = of_native([{"binary": "sidecar/sidecar", "name": "auth::tests::only_a", "outcome": "passed"}])
    cases = of_pytest(REPORT) + native
    assert [case.outcome for case in cases] == ["passed", "failed", "skipped", "passed"]
    assert counted(TOLD, cases) == {"keys hold": {"tried": 3, "succeeded": 1}}


def test_a_test_of_the_same_name_elsewhere_counts_for_nothing() -> None:
    assert counted(TOLD, [Case("tests/unit/test_other.py", "only_a", "failed")]) == {}
    assert counted(TOLD, [Case("sidecar/sidecar", "test_a", "passed")]) == {}


def test_what_did_not_run_is_told() -> None:
    assert missing(TOLD, of_pytest(REPORT), ["tests/product", "sidecar"]) == [f"{NATIVE}::only_a"]


def test_the_table_has_both_places_and_a_sum() -> None:
    text = "before\n<!-- tried: made by `python -m tests.security --page` -->\nold\n<!-- /tried -->\nbehind\n"
    tallies = {"engine": {"keys hold": {"tried": 3, "succeeded": 1}}}
    rows = page(text, TOLD, tallies).splitlines()
    assert rows[0] == "before"
    assert rows[-1] == "behind"
    assert rows[4:7] == ["| keys hold | 3 / 1 |  |", "| readiness holds |  |  |", "| **all** | **3 / 1** |  |"]
