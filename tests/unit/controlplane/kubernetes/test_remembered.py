"""What is remembered of a registry: no more than there is room for, what was asked for least recently goes first."""

from controlplane.cluster.kubernetes.node_agents.remembered import Remembered


def test_what_was_asked_for_least_recently_goes_first() -> None:
    known: Remembered[int] = Remembered(2)
    known.put("a", 1)
    known.put("b", 2)
    assert known.get("a") == 1
    known.put("c", 3)
    assert [known.get(key) for key in "abc"] == [1, None, 3]
    known.forget("a")
    known.forget("a")
    assert known.get("a") is None
