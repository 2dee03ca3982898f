"""Whose a pod is: its namespace's, its owner's, and that of the test that ran when it was made."""

from __future__ import annotations

from tests.levels.spent import Cost, Pod, Ran, spent, table

MINE = frozenset({("rollbox", ""), ("rollbox-sandboxes", "tests")})
THEIRS = frozenset({("rollbox", ""), ("rollbox-sandboxes", "tests-1")})


def sandbox(owner: str, at_s: float, namespace: str = "rollbox-sandboxes") -> Pod:
    return Pod(namespace, owner, sandbox=True, at_s=at_s)


def test_a_pod_is_of_the_test_that_ran_then_in_its_place_and_of_its_owner() -> None:
    tests = [
        Ran("a.py::one", 0, 10, MINE),
        Ran("a.py::two", 10, 20, MINE),
        Ran("b.py::other", 0, 20, THEIRS),
        Ran("c.py::own", 0, 20, frozenset({("rollbox-own", ""), ("rollbox-own-sandboxes", "tests")})),
    ]
    pods = [
        sandbox("tests", 3),
        sandbox("tests", 4),
        sandbox("tests", 13),
        sandbox("tests-1", 5),
        sandbox("tests", 15, "rollbox-own-sandboxes"),
        Pod("rollbox-own", "", sandbox=False, at_s=1),
        sandbox("tests", 30),
        Pod("kube-system", "", sandbox=False, at_s=1),
    ]
    found = spent(tests, pods)
    assert {name: (cost.sandboxes, cost.others) for name, cost in found.tests.items()} == {
        "a.py::one": (2, 0),
        "a.py::two": (1, 0),
        "b.py::other": (1, 0),
        "c.py::own": (1, 1),
    }
    assert found.elsewhere == 2
    assert found.by_file()["a.py"] == Cost(tests=2, seconds=20, sandboxes=3)


def test_what_is_in_a_pool_and_nobodys_yet_counts_for_who_looks_first() -> None:
    found = spent([Ran("a.py::one", 0, 10, MINE), Ran("b.py::other", 0, 10, THEIRS)], [sandbox("", 3)])
    assert [cost.sandboxes for cost in found.tests.values()] == [1, 0]


def test_the_tables_begin_with_what_made_most() -> None:
    tests = [Ran("a.py::one", 0, 10, MINE), Ran("b.py::other", 0, 4, THEIRS), Ran("b.py::none", 4, 5, THEIRS)]
    lines = list(table(spent(tests, [sandbox("tests-1", 1), sandbox("tests-1", 2), sandbox("tests", 1)])))
    assert [line.split() for line in lines[1:3]] == [["2", "0", "2", "5", "b.py"], ["1", "0", "1", "10", "a.py"]]
    assert lines[3].split()[:4] == ["3", "0", "3", "15"]
    assert [line.split()[-1] for line in lines[-2:]] == ["b.py::other", "a.py::one"]
