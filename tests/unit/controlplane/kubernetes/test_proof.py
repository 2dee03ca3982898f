"""The taint of nodes that are not proven: set and lifted without losing what others have put there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.nodes.proof import ANNOTATION, TAINT, Proof, marked, tainted, unmarked

OTHER = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
PROVEN = Proof(installer="installed", programs={"runsc": "1"})
NOT_PROVEN = Proof(troubles=["containerd does not offer the runtime runsc"], installer="failed", detail="why")


def node(*taints: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "node-1", "resourceVersion": "7"}, "spec": {"taints": [*taints]}}


def patched(before: dict[str, Any], patch: Any) -> dict[str, Any]:
    """What the API server makes of a merge patch like these."""
    notes = {**before["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
    notes = {key: value for key, value in notes.items() if value is not None}
    return {
        "metadata": {**before["metadata"], "annotations": notes},
        "spec": {"taints": patch["spec"]["taints"] or []},
    }


proofs = st.builds(
    Proof,
    troubles=st.lists(st.text(max_size=9), max_size=2),
    installer=st.sampled_from(["", "installed", "refused", "failed"]),
    detail=st.text(max_size=9),
    programs=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    lazy_trouble=st.text(max_size=9),
    low=st.lists(st.text(max_size=9), max_size=2),
)


@given(proofs, st.lists(st.sampled_from([OTHER, {"key": TAINT, "effect": "NoSchedule"}]), max_size=2))
def test_a_proof_is_written_once_and_read_again(proof: Proof, taints: list[dict[str, str]]) -> None:
    before = node(*taints)
    patch = marked(before, proof)
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"
    after = patched(before, patch)
    assert (Proof.of(after), tainted(after), marked(after, proof)) == (proof, not proof.proven, None)
    assert after["spec"]["taints"].count(OTHER) == taints.count(OTHER)


def test_all_of_it_is_taken_away_again() -> None:
    before = node(OTHER)
    assert unmarked(before) is None
    patch = marked(before, NOT_PROVEN)
    assert patch is not None
    after = patched(before, patch)
    lifted = unmarked(after)
    assert lifted is not None
    after = patched(after, lifted)
    assert (after["spec"]["taints"], after["metadata"]["annotations"], unmarked(after)) == ([OTHER], {}, None)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"of": "another version"}'])
def test_what_cannot_be_read_is_none(text: str) -> None:
    before = node()
    before["metadata"]["annotations"] = {ANNOTATION: text}
    assert Proof.of(before) is None
    assert marked(before, PROVEN) is not None
