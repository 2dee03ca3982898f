"""What a record keeps of the error that ended a sandbox, and what it reads of another version's."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.model import EndCause, Sandbox, SandboxSpec, State, dump_tombstone, load_tombstone
from controlplane.model.sandbox import MOST_DETAILS, MOST_OF_A_DETAIL
from controlplane.store import rows

SPEC = SandboxSpec(image="a")
END = EndCause("invalid_argument", "d", 6, "control plane", {"reason": "user_not_found", "field": "user"})
ENDED = Sandbox("sb-1", "alice", SPEC, 1, 2, SPEC.fingerprint(), state=State.ENDED, end=END)


def test_the_error_of_an_end_is_told_again_with_its_details() -> None:
    problem = Problem("invalid_argument", "d", reason="user_not_found", field="user", sandbox_id="sb-0", by="x")
    end = EndCause.of(problem, 6, "control plane")
    assert end == END
    told = end.problem(ENDED)
    assert told.hint == problem.hint
    own = {"sandbox_id": "sb-1", "ended_at_ms": "6", "by": "control plane"}
    assert told.details == {"reason": "user_not_found", "field": "user", **own}


def test_what_is_kept_of_details_is_bounded() -> None:
    many: dict[str, Any] = {f"d{number:02}": "x" for number in range(MOST_DETAILS + 5)}
    assert [*EndCause.of(Problem("internal", "d", **many), 1, "x").details] == sorted(many)[:MOST_DETAILS]
    long: dict[str, Any] = {"a": "x" * MOST_OF_A_DETAIL, "reason": "exists"}
    assert EndCause.of(Problem("conflict", "d", **long), 1, "x").details == {"reason": "exists"}


@pytest.mark.parametrize("more", [{}, {"of_a_newer_version": 1}])
def test_stored_ends_are_read_whatever_a_newer_version_adds(more: dict[str, int]) -> None:
    body = json.loads(rows.dump(ENDED))
    assert rows.load_fields({**body, "end": {**body["end"], **more}}) == ENDED
    tombstone = json.loads(json.dumps(dump_tombstone(ENDED)))
    kept = load_tombstone({**tombstone, "end": {**asdict(END), **more}})
    assert kept is not None
    assert kept.end == END


def test_an_end_of_an_unknown_cause_is_no_record() -> None:
    odd = replace(ENDED, end=replace(END, cause="of_a_newer_version"))  # type: ignore[arg-type]
    assert load_tombstone(json.loads(json.dumps(dump_tombstone(odd)))) is None
    with pytest.raises(ValueError, match="of_a_newer_version"):
        rows.load(rows.dump(odd))
