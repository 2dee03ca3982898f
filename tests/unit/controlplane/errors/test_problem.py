"""Problems: the contract's vectors, and the way through gRPC details."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import TABLE, Problem

VECTORS = Path(__file__).parents[4] / "contract" / "vectors" / "errors.json"


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda vector: vector["problem"]["code"])
def test_a_problem_is_written_as_the_contract_says(vector: dict[str, Any]) -> None:
    wanted = vector["problem"]
    problem = Problem(wanted["code"], wanted["detail"], retry_after_ms=vector["retry_after_ms"], **wanted["details"])
    assert problem.to_json(vector["request_id"]) == vector["body"]
    assert problem.entry.http == vector["http"]


@given(st.sampled_from(sorted(TABLE)), st.text(), st.dictionaries(st.text(), st.text()))
def test_a_problem_survives_the_wire(code: Any, detail: str, details: dict[str, str]) -> None:
    problem = Problem(code, detail)
    problem.details = details
    read = Problem.decode(problem.encode())
    assert read is not None
    assert (read.code, read.detail, read.details) == (code, detail, details)


@pytest.mark.parametrize("data", [b"\xff\xff", b"", b"\x0a\x04nope"])
def test_bytes_that_are_no_problem_are_refused(data: bytes) -> None:
    assert Problem.decode(data) is None
