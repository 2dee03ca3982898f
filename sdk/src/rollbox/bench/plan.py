"""What a benchmark is going to do: which scenarios fit, and what they create. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollbox._problem import SandboxError
from rollbox.bench.scenarios import Scenario
from rollbox.errors import CapacityUnavailable, InvalidArgument
from rollbox.quota import Preflight
from rollbox.recording.current import RUN_LABEL


def chosen(known: Mapping[str, Scenario], names: Iterable[str]) -> dict[str, Scenario]:
    """Return the scenarios of these names; all where none is named.

    Raises:
        InvalidArgument: there is no scenario of a name.
    """
    wanted = dict.fromkeys(names)
    wrong = [name for name in wanted if name not in known]
    if wrong:
        hint = f"There are: {', '.join(known)}."
        raise InvalidArgument(f"there is no scenario {', '.join(map(repr, wrong))}", hint=hint)
    return {name: one for name, one in known.items() if name in wanted or not wanted}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a benchmark is going to do.

    Attributes:
        scenarios: that fit, by name.
        left_out: those that do not, and why.
        told: what the preflight has found, in words.
    """

    scenarios: dict[str, Scenario]
    left_out: dict[str, str]
    told: str

    def text(self, run: str, image: str, seconds: float) -> str:
        """Say what is going to be created."""
        several = self.scenarios.values()
        creates, commands = sum(one.creates for one in several), sum(one.commands for one in several)
        most = max((one.sandboxes for one in several), default=0)
        bound = f"each scenario measures for at most {seconds:g} s"
        lines = [
            f"at most {most} sandboxes of {image} at the same time, {creates} in all, and {commands} commands; {bound}",
            f"all of them have the label {RUN_LABEL}={run}, and are deleted at the end, also after Ctrl-C",
        ]
        return "\n".join(lines + [f"{name} is left out: {why}" for name, why in self.left_out.items()])


def planned(wanted: Mapping[str, Scenario], foreseen: Preflight, *, named: bool) -> Plan:
    """Compare scenarios with what may be created.

    Args:
        wanted: by name.
        foreseen: of as many sandboxes as the largest of them has.
        named: the caller has named them: each has to fit.

    Raises:
        SandboxError: nothing fits, or not all that was named; the error of what prevents it.
    """
    may_have = foreseen.count if foreseen.fits else foreseen.may_have
    over = {name: one.sandboxes for name, one in wanted.items() if one.sandboxes > may_have}
    if over and (named or len(over) == len(wanted)):
        raise _refusal(foreseen, over)
    why = foreseen.blockers[0].detail if foreseen.blockers else "there is no room for more"
    left_out = {name: f"it needs {count} sandboxes, {may_have} may run now ({why})" for name, count in over.items()}
    fits = {name: one for name, one in wanted.items() if name not in over}
    return Plan(fits, left_out, str(foreseen))


def _refusal(foreseen: Preflight, over: Mapping[str, int]) -> SandboxError:
    if foreseen.blockers:
        return foreseen.blockers[0].error()
    return CapacityUnavailable(f"{', '.join(over)}: {max(over.values())} sandboxes do not fit now")
