"""From what a sandbox and an unrestricted pod saw to a verdict. Pure.

Silence alone proves nothing: what answers nobody is not forbidden. So a way counts as forbidden only where the
unrestricted pod gets an answer and the sandbox gets none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from controlplane.reach.attempts import Seen
from controlplane.reach.ways import Way

IGNORED: Final = "the cluster's network plugin does not enforce NetworkPolicy"
IN_PART: Final = "the cluster's network plugin enforces NetworkPolicy, but not for all that a sandbox must not reach"
SHUT: Final = "a sandbox does not reach the readiness port of the control plane, so none would ever get ready"
UNKNOWN: Final = "nothing that a sandbox must not reach answered anybody, so whether policies are enforced is unknown"
ENFORCED: Final = "the cluster's network plugin enforces NetworkPolicy"

INSTALL: Final = "Use a network plugin that enforces NetworkPolicy for every pod, such as Cilium or Calico"
OPEN: Final = (
    "Look for a policy of yours, or a firewall, between the sandboxes' pods and TCP port 8082 of the platform's"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one way came to.

    Attributes:
        state: ``kept``: as it should be, and proven; ``broken``: not as it should be; ``unknown``: nothing is proven.
        sentence: for people.
    """

    way: Way
    state: Literal["kept", "broken", "unknown"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What all ways together came to.

    Attributes:
        isolated: policies are enforced, and what the platform needs works.
        sentence: for people.
        fix: what to do about it; empty when nothing is to be done.
        works: whether sandboxes run all the same, which is then a risk that can be accepted.
    """

    isolated: bool
    sentence: str
    fix: str = ""
    works: bool = True


def judged(ways: Sequence[Way], inside: Mapping[str, Seen], outside: Mapping[str, Seen]) -> list[Verdict]:
    """A verdict for each way.

    Args:
        ways: what was tried.
        inside: what a sandbox saw, by name.
        outside: what an unrestricted pod saw, by name.
    """
    return [_must_work(way, inside, outside) if way.must_work else _must_not(way, inside, outside) for way in ways]


def concluded(verdicts: Sequence[Verdict]) -> Conclusion:
    """What follows for the cluster."""
    broken = [one for one in verdicts if one.state == "broken"]
    reached = [one for one in broken if not one.way.must_work]
    forbidden = [one for one in verdicts if one.state == "kept" and not one.way.must_work]
    if any(one.way.must_work for one in broken):
        return Conclusion(False, SHUT, OPEN, works=False)
    if reached:
        return Conclusion(False, IN_PART if forbidden else IGNORED, INSTALL)
    if not forbidden:
        return Conclusion(False, UNKNOWN, INSTALL)
    return Conclusion(True, ENFORCED)


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """One line for each."""
    marks = {"kept": "ok", "broken": "BROKEN", "unknown": "unknown"}
    for one in verdicts:
        yield f"{marks[one.state]}: {one.sentence}"


def _must_not(way: Way, inside: Mapping[str, Seen], outside: Mapping[str, Seen]) -> Verdict:
    there = f"the {way.name} ({way.address})"
    mine, other = inside.get(way.name), outside.get(way.name)
    if mine is None:
        return Verdict(way, "unknown", f"whether a sandbox reaches {there} was not tried")
    if mine.ending == "open":
        return Verdict(way, "broken", f"a sandbox reaches {there}")
    if other is None or other.ending == "closed":
        return Verdict(way, "unknown", f"nothing answers at {there}, an unrestricted pod neither")
    # A plugin may refuse what it forbids. Where nobody listens either, a refusal does not tell who has refused.
    if mine.ending == other.ending == "refused":
        return Verdict(way, "unknown", f"nothing listens at {there}, so a refusal does not tell what has refused")
    late = f", but {mine.after_s:g} s late: what is quicker gets through" if mine.after_s else ""
    return Verdict(way, "kept", f"{there} answers an unrestricted pod, and no sandbox{late}")


def _must_work(way: Way, inside: Mapping[str, Seen], outside: Mapping[str, Seen]) -> Verdict:
    there = f"the {way.name} ({way.address})"
    mine, other = inside.get(way.name), outside.get(way.name)
    if mine is not None and mine.ending == "open":
        late = f", {mine.after_s:g} s after it began to try" if mine.after_s else ""
        return Verdict(way, "kept", f"a sandbox reaches {there}{late}")
    how = "was not tried" if mine is None else f"is {mine.ending}"
    answers = other is not None and other.ending == "open"
    elsewhere = "an unrestricted pod reaches it" if answers else "it answers an unrestricted pod no better"
    return Verdict(way, "broken", f"for a sandbox {there} {how}; {elsewhere}")
