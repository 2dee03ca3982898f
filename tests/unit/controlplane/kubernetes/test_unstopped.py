"""Which pods their node does not stop."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.marks import FINALIZER
from controlplane.cluster.kubernetes.pods.unstopped import UNSTOPPED_MS, unstopped

NOW_MS = 1_700_000_000_000


def stamp(ago_s: int) -> str:
    return datetime.fromtimestamp(NOW_MS / 1000 - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


asked_s_ago = st.none() | st.integers(0, UNSTOPPED_MS // 500)
rows = st.tuples(asked_s_ago, st.sampled_from(["", "n1", "n2"]), st.lists(st.just(FINALIZER), max_size=1))


def pod(name: str, asked_s: int | None, node: str, finalizers: list[str]) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "finalizers": finalizers}
    if asked_s is not None:
        about["deletionTimestamp"] = stamp(asked_s)
    return {"metadata": about, "spec": {"nodeName": node} if node else {}}


@given(st.lists(rows, max_size=20))
def test_they_are_on_a_node_were_asked_long_ago_and_nothing_of_ours_holds_them(
    pods: list[tuple[int | None, str, list[str]]],
) -> None:
    found = unstopped([pod(f"sb-{number}", *one) for number, one in enumerate(pods)], NOW_MS)
    wanted = {
        f"sb-{number}": asked_s
        for number, (asked_s, node, finalizers) in enumerate(pods)
        if asked_s is not None and 1000 * asked_s > UNSTOPPED_MS and node and not finalizers
    }
    assert {one.name: one.for_ms // 1000 for one in found} == wanted
    assert [one.for_ms for one in found] == sorted((one.for_ms for one in found), reverse=True)
