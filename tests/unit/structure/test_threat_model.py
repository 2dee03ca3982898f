"""The promises of docs/inside/threat-model.md are held by tests that there are."""

from __future__ import annotations

import re

import pytest

from tests.security.promises import PAGE, ROOT, Promise, promises
from tests.security.tally import BEGIN, END

PROMISES = promises(PAGE.read_text())
# How a test begins in each language.
BEGINS = {
    ".py": r"^(?:async )?def {}\(",
    ".rs": r"#\[(?:\w+::)*test(?:\([^\]]*\))?\]\n(?:\s*(?:#\[[^\]]*\]|//[^\n]*)\n)*\s*(?:async )?fn {}\(",
    ".go": r"^func {}\(t \*testing\.T\)",
}


def is_there(file: str, name: str) -> bool:
    """Whether a file of the repository has a test of this name."""
    path = ROOT / file
    return path.is_file() and re.search(BEGINS[path.suffix].format(name), path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("promise", PROMISES, ids=[one.says for one in PROMISES])
def test_a_promise_is_held_by_tests_that_are_there(promise: Promise) -> None:
    assert promise.says
    assert promise.tests
    assert promise.rest == "", "not of the form `FILE::TEST`"
    assert [f"{file}::{name}" for file, name in promise.tests if not is_there(file, name)] == []


def test_what_was_tried_is_told_of_these_promises() -> None:
    told = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()[2:-1]
    assert [row.strip("|").split(" | ")[0].strip() for row in told] == [one.says for one in PROMISES]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("tests/unit/structure/test_threat_model.py", "test_that_nobody_has_written"),
        ("tests/unit/structure/test_threat_model.py", "is_there"[:-1]),
        ("tests/unit/structure/no_such_file.py", "test_a"),
        ("sidecar/src/auth.rs", "only_a_valid_token_of_this_sandbox"),
        # A function of the program, and one of the tests that is none.
        ("sidecar/src/install.rs", "install"),
        ("sidecar/tests/end_to_end/tcp.rs", "connect_many"),
        ("node-go/internal/gate/gate_test.go", "TestA"),
    ],
)
def test_a_name_without_a_test_is_noticed(file: str, name: str) -> None:
    assert not is_there(file, name)


def test_tests_of_each_language_are_found() -> None:
    own = "tests/unit/structure/test_threat_model.py"
    assert is_there(own, "test_tests_of_each_language_are_found")
    assert is_there("sidecar/src/auth.rs", "only_a_valid_token_of_this_sandbox_with_the_scope_is_let_in")
    assert is_there("node-go/internal/gate/gate_test.go", "TestATokenOfAnotherKeyKindOrTimeIsRefused")
