"""Which test has made which pods: a pod is its test's by the namespace, the owner and the moment. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

# A namespace, and whose sandboxes in it: "" for everybody's.
Place = tuple[str, str]
SHOWN = 30


@dataclass(frozen=True)
class Pod:
    """A pod of the cluster.

    Attributes:
        owner: of a sandbox; empty: it is none, or nobody's yet.
        at_s: when it was first seen (Unix time).
    """

    namespace: str
    owner: str
    sandbox: bool
    at_s: float


@dataclass
class Ran:
    """A test that has run, with its fixtures.

    Attributes:
        places: where it makes pods.
    """

    name: str
    began_s: float
    ended_s: float
    places: frozenset[Place] = frozenset()

    def made(self, pod: Pod) -> bool:
        """Whether the pod is this test's."""
        if not self.began_s <= pod.at_s <= self.ended_s:
            return False
        return any(pod.namespace == place and (not owner or pod.owner in ("", owner)) for place, owner in self.places)


@dataclass
class Cost:
    """What tests took.

    Attributes:
        sandboxes: pods of sandboxes.
        others: other pods: parts of releases, checks of an install.
    """

    tests: int = 0
    seconds: float = 0.0
    sandboxes: int = 0
    others: int = 0

    def add(self, other: Cost) -> None:
        """Count the other one in."""
        self.tests += other.tests
        self.seconds += other.seconds
        self.sandboxes += other.sandboxes
        self.others += other.others


@dataclass
class Spent:
    """What each test took, and the pods that are no test's of this run."""

    tests: dict[str, Cost] = field(default_factory=dict)
    elsewhere: int = 0

    def by_file(self) -> dict[str, Cost]:
        """The same by file."""
        files: defaultdict[str, Cost] = defaultdict(Cost)
        for name, cost in self.tests.items():
            files[name.partition("::")[0]].add(cost)
        return dict(files)


def spent(tests: Sequence[Ran], pods: Iterable[Pod]) -> Spent:
    """What each test took: where two could have made a pod, it is the first one's."""
    found = Spent({one.name: Cost(1, one.ended_s - one.began_s) for one in tests})
    owners = Counter[tuple[str, bool]]()
    for pod in pods:
        maker = next((one for one in tests if one.made(pod)), None)
        if maker is None:
            found.elsewhere += 1
        else:
            owners[maker.name, pod.sandbox] += 1
    for (name, sandbox), count in owners.items():
        if sandbox:
            found.tests[name].sandboxes += count
        else:
            found.tests[name].others += count
    return found


def table(found: Spent) -> Iterator[str]:
    """The lines of two tables: by file, and the tests that made most."""
    total = Cost()
    for cost in found.tests.values():
        total.add(cost)
    yield f"  {'sandboxes':>9} {'other pods':>10} {'tests':>5} {'seconds':>7}"
    files = _sorted(found.by_file())
    yield from (_line(cost, name) for name, cost in files)
    yield _line(total, f"together; {found.elsewhere} pods more are no test's of this run")
    yield f"  the {SHOWN} tests that made most:"
    yield from (_line(cost, name) for name, cost in _sorted(found.tests)[:SHOWN] if cost.sandboxes + cost.others)


def _sorted(costs: dict[str, Cost]) -> list[tuple[str, Cost]]:
    return sorted(costs.items(), key=lambda one: (-one[1].sandboxes - one[1].others, -one[1].seconds))


def _line(cost: Cost, name: str) -> str:
    return f"  {cost.sandboxes:>9} {cost.others:>10} {cost.tests:>5} {cost.seconds:>7.0f}  {name}"
