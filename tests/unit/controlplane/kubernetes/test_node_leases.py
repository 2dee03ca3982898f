"""Which kubelets are silent: those that few others join, heard by a watch that hears of somebody."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.nodes.node_leases import FRESH_S, SILENT_S, NodeLeases, most_silent, silent


def lease(name: str, renewal: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"renewTime": f"2026-01-01T00:00:{renewal:02}.000000Z"}}


class Ground:
    def __init__(self, *names: str) -> None:
        self.now_s = 0.0
        self.changed: list[str] = []
        self.leases = NodeLeases(self.changed.append, lambda: self.now_s)
        self.leases.replace([lease(name, 0) for name in names])

    def pass_s(self, seconds: int, *renewing: str) -> frozenset[str]:
        for _ in range(seconds // 10):
            self.now_s += 10
            for name in renewing:
                self.leases.put(lease(name, int(self.now_s) % 60))
            self.leases.judge()
        return self.leases.silent


def test_one_that_misses_two_renewals_is_silent_until_it_renews() -> None:
    at = Ground("a", "b")
    assert at.pass_s(20, "a") == frozenset()
    assert at.pass_s(10, "a") == {"b"}
    assert at.pass_s(10, "a", "b") == frozenset()
    assert at.changed == ["b", "b"]


def test_a_lease_that_comes_again_unchanged_is_no_renewal() -> None:
    at = Ground("a", "b")
    for _ in range(3):
        at.pass_s(10, "a")
        at.leases.replace([lease("a", int(at.now_s) % 60), lease("b", 0)])
    at.leases.judge()
    assert at.leases.silent == {"b"}


def test_a_watch_that_hears_of_nobody_says_nothing() -> None:
    assert Ground("a", "b").pass_s(120) == frozenset()
    assert Ground("alone").pass_s(120) == frozenset()


def test_where_many_fall_silent_it_is_not_they() -> None:
    names = [f"n{number}" for number in range(9)]
    # A zone of three may be lost, half of the nodes not at once.
    assert Ground(*names).pass_s(60, *names[4:]) == set(names[:4])
    assert Ground(*names).pass_s(60, *names[5:]) == frozenset()
    assert Ground(*names[:2]).pass_s(60, names[1]) == {names[0]}


def test_a_node_that_is_gone_is_not_silent() -> None:
    at = Ground("a", "b")
    at.pass_s(30, "a")
    at.leases.remove(lease("b", 0))
    at.leases.judge()
    assert at.leases.silent == frozenset()


@given(st.dictionaries(st.text("abc", max_size=3), st.floats(0, 100), max_size=12))
def test_it_never_names_many_nor_one_that_has_spoken(ages_s: dict[str, float]) -> None:
    found = silent(ages_s)
    assert all(ages_s[name] > SILENT_S for name in found)
    assert len(found) <= most_silent(len(ages_s))
    assert len(found) <= 1 or len(found) < len(ages_s) / 2
    assert not found or min(ages_s.values()) <= FRESH_S
