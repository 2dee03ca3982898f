"""Builders that wait for the next build of their owner."""

from __future__ import annotations

from controlplane.cluster.kubernetes.builds.kept import MOST_BUILDERS, BuilderPod, KeptBuilders, Use
from controlplane.cluster.kubernetes.builds.pod import LIVES_S, REUSED_FOR_S

ALICE = Use("alice", "amd64")
KEEP_MS = 60_000


def pod(name: str, use: Use = ALICE, made_ms: float = 0) -> BuilderPod:
    return BuilderPod(name, "token", use, made_ms)


def test_one_waits_for_builds_of_the_same_owner_that_reach_the_same() -> None:
    kept = KeptBuilders(KEEP_MS)
    assert kept.put(pod("a"), 1000)
    for other in (Use("bob", "amd64"), Use("alice", "arm64"), Use("alice", "amd64", "packages")):
        assert kept.take(other, 1000) is None
    found = kept.take(ALICE, 1000 + KEEP_MS)
    assert found is not None
    assert found.name == "a"
    assert kept.take(ALICE, 1000) is None, "it builds, and is nobody else's"


def test_the_one_that_has_built_last_is_taken() -> None:
    kept = KeptBuilders(KEEP_MS)
    for name, at in (("a", 0), ("b", 10)):
        kept.put(pod(name), at)
    found = kept.take(ALICE, 20)
    assert found is not None
    assert found.name == "b"


def test_none_waits_that_is_for_one_build_or_old_or_where_none_may() -> None:
    assert not KeptBuilders(KEEP_MS).put(pod("a", Use("alice", "amd64", is_alone=True)), 0)
    assert not KeptBuilders(0).put(pod("a"), 0)
    assert KeptBuilders(KEEP_MS).put(pod("a"), REUSED_FOR_S * 1000)
    assert not KeptBuilders(KEEP_MS).put(pod("a"), REUSED_FOR_S * 1000 + 1)


def test_a_pod_lives_for_the_longest_build_behind_its_last_reuse() -> None:
    longest_s = 7_200
    assert REUSED_FOR_S + KEEP_MS / 1000 + longest_s < LIVES_S


def test_each_waits_for_its_time() -> None:
    kept = KeptBuilders(KEEP_MS)
    for name, at in (("a", 0), ("b", 10)):
        kept.put(pod(name), at)
    assert kept.overdue(KEEP_MS) == []
    assert [one.name for one in kept.overdue(KEEP_MS + 1)] == ["a"]
    assert kept.take(ALICE, KEEP_MS + 11) is None
    assert [one.name for one in kept.overdue(float("inf"))] == ["b"]


def test_beside_those_that_build_so_many_wait() -> None:
    kept = KeptBuilders(KEEP_MS)
    for number in range(MOST_BUILDERS):
        kept.put(pod(str(number)), number)
    assert kept.beyond(0) == []
    assert [one.name for one in kept.beyond(1)] == ["0"]
    assert [one.name for one in kept.beyond(MOST_BUILDERS + 1)] == ["1", "2", "3"]
    assert kept.beyond(1) == []
