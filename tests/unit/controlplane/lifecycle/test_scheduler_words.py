"""What a scheduler says, for people who know no scheduler."""

import pytest

from controlplane.lifecycle.waiting.scheduler_words import plain


@pytest.mark.parametrize(
    ("words", "plainly"),
    [
        (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
            "of 1 node 1 has too little cpu left",
        ),
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. no new claims, preemption: 0/3 nodes",
            "of 3 nodes 1 has too little cpu left and 2 have too little memory left",
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, 1 Too many pods.",
            "of 2 nodes 1 has a taint that sandboxes do not tolerate ({a: b}) and 1 has no place for another pod left",
        ),
        (
            "0/2 nodes are available: 2 node(s) were unschedulable.",
            "of 2 nodes 2 have been cordoned",
        ),
        (
            "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector. preemption: 0/4",
            "of 4 nodes 4 have not the labels that it asks for",
        ),
        (
            "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are",
            "of 1 node 1 has no device left that it may have",
        ),
        ("0/1 nodes are available: 1 node(s) have a new reason.", "of 1 node 1: node(s) have a new reason"),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
        ("", ""),
    ],
)
def test_the_reasons_are_told_by_number_of_nodes(words: str, plainly: str) -> None:
    assert plain(words) == plainly


def test_a_message_of_any_length_is_cut() -> None:
    assert len(plain("x" * 10_000)) == 200
