"""Compares what a sandbox and an unrestricted pod reached, and concludes whether policies are enforced. Pure.

A timeout alone proves nothing: the destination may answer no client at all. So a destination counts as forbidden only
where the unrestricted pod gets an answer and the sandbox gets none.
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
    """The verdict for one destination.

    Attributes:
        state: ``kept``: the expected result, proven; ``broken``: not the expected result; ``unknown``: nothing proven.
        sentence: the explanation for users.
    """

    way: Way
    state: Literal["kept", "broken", "unknown"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The conclusion from all verdicts.

    Attributes:
        isolated: policies are enforced, and the connections that the platform needs work.
        sentence: the explanation for users.
        fix: what the user should do; empty when nothing is to be done.
        works: whether sandboxes can run at all; where they can, missing isolation is a risk that can be accepted.
    """

    isolated: bool
    sentence: str
    fix: str = ""
    works: bool = True


def judged(ways: Sequence[Way], inside: Mapping[str, Seen], outside: Mapping[str, Seen]) -> list[Verdict]:
    """A verdict for each destination.

    Args:
        ways: the destinations that were tried.
        inside: the results from a sandbox, by name.
        outside: the results from an unrestricted pod, by name.
    """
    return [_must_work(way, inside, outside) if way.must_work else _must_not(way, inside, outside) for way in ways]


def concluded(verdicts: Sequence[Verdict]) -> Conclusion:
    """The conclusion for the cluster."""
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
    """One line of output for each verdict."""
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
    # A network plugin may refuse forbidden connections instead of dropping them. Where the unrestricted pod is refused
    # too, nothing listens there, so the sandbox's refusal may come from the host and not from the plugin.
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
