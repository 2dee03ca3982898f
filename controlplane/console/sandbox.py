"""What the page of one sandbox shows, from its record and what its sidecar tells. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.cluster import Command
from controlplane.console.rows import SandboxRow
from controlplane.console.words import clock, cores, duration, moment, number
from controlplane.errors import Problem
from controlplane.lifecycle.record.timeline import story, summary
from controlplane.model import Sandbox
from controlplane.model.units import size

MOST_COMMANDS: Final = 100
MOST_ARGV: Final = 2_000
# The parts of a start, in the order of time.
PARTS: Final = {
    "queue": "waited for room or its turn",
    "copy": "the private registry copied the image",
    "convert": "the image was converted",
    "pull": "the image was pulled",
    "unknown": "not known: the replica that began it has gone",
    "start": "its containers are asked for",
    "node": "on the node: scheduling, pull, containers",
    "boot": "from the sidecar's start to the first command",
}


@dataclass(frozen=True, slots=True)
class MomentRow:
    """An entry of the timeline; ``after`` since the one before, ``time`` of the day."""

    at: str
    time: str
    after: str
    state: str
    text: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A phase of the start; ``share`` of the longest one, in percent."""

    name: str
    took: str
    share: int


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command; ``kind``: runs, good (it exited with 0) or bad."""

    exec_id: str
    line: str
    kind: str
    how: str
    age: str
    at: str
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Told:
    """What is asked beside the record, for one sandbox.

    Attributes:
        refusal: why it fits on no node.
        pulling: what its node pulls.
        commands: newest first; None: they are not known.
        commands_trouble: why they are not.
        silence: that it does not answer.
    """

    refusal: Problem | None = None
    pulling: str = ""
    commands: Sequence[Command] | None = None
    commands_trouble: str = ""
    silence: str = ""


@dataclass(frozen=True, slots=True)
class SandboxStory:
    """The page of one sandbox."""

    owner: str
    version: str
    now_ms: int
    row: SandboxRow
    summary: str
    advice: str
    masked: bool
    facts: Sequence[tuple[str, str]]
    labels: Sequence[tuple[str, str]]
    moments: Sequence[MomentRow]
    phases: Sequence[PhaseRow]
    commands: Sequence[CommandRow]
    commands_trouble: str
    more_commands: str

    @classmethod
    def of(cls, who: tuple[str, str], one: Sandbox, told: Told, now_ms: int) -> "SandboxStory":
        """Puts it together.

        Args:
            who: the owner's name, and the version of the installation.
            one: the record.
            told: what was asked beside it.
            now_ms: Unix time.
        """
        problem = None if one.end is None else one.end.problem(one)
        commands = told.commands or ()
        return cls(
            owner=who[0],
            version=who[1],
            now_ms=now_ms,
            row=SandboxRow.of(one, now_ms, now_ms if told.silence else None),
            summary=summary(one, told.refusal, told.pulling, told.silence),
            advice="" if problem is None else problem.hint,
            masked=problem is not None and problem.entry.mask_sample and problem.code != "deleted",
            facts=_facts(one, now_ms),
            labels=sorted(one.spec.labels.items()),
            moments=[
                MomentRow(moment(m.at_ms), clock(m.at_ms), duration(m.after_ms), m.state, m.text) for m in story(one)
            ],
            phases=_phases(one),
            commands=[_command(command, now_ms) for command in commands[:MOST_COMMANDS]],
            commands_trouble=told.commands_trouble,
            more_commands=number(len(commands) - MOST_COMMANDS) if len(commands) > MOST_COMMANDS else "",
        )


def _facts(one: Sandbox, now_ms: int) -> list[tuple[str, str]]:
    spec = one.spec
    cpu, memory = spec.cpu_millicores, spec.memory_bytes
    told = [
        ("image", spec.image),
        ("digest", one.image_digest),
        ("cpu", f"{cores(cpu.request)} set aside, at most {cores(cpu.limit)}"),
        ("memory", f"{size(memory.request)} set aside, at most {size(memory.limit)}"),
        ("gpu", str(spec.gpu or "")),
        ("mounts", ", ".join(f"{path}: {mount.words}" for path, mount in sorted(spec.mounts.items()))),
        ("asked for", moment(one.created_at_ms)),
        ("ready", "" if one.ready_at_ms is None else moment(one.ready_at_ms)),
        ("pool", one.pool),
        ("claimed", "" if one.claimed_at_ms is None else moment(one.claimed_at_ms)),
        ("cold, since", one.cold_reason),
        ("ttl ends", moment(one.expires_at_ms)),
        ("idle timeout", "" if spec.idle_timeout_ms is None else duration(spec.idle_timeout_ms)),
        ("lease", "" if spec.lease is None else spec.lease.name),
        ("drained by", "" if one.drained_by_ms is None else moment(one.drained_by_ms)),
        ("public ports", ", ".join(map(str, one.public_ports))),
        ("network policy", _egress(one)),
    ]
    if one.end is not None:
        told += [
            ("ended", f"{moment(one.end.at_ms)}, {duration(now_ms - one.end.at_ms)} ago"),
            ("cause", f"{one.end.cause} (fault: {one.end.fault}, by {one.end.by})"),
        ]
    return [(name, text) for name, text in told if text]


def _egress(one: Sandbox) -> str:
    """The name of its policy, and whether that is in force; empty where it reaches nothing and never did."""
    if not one.egress.bound:
        return ""
    return one.egress.name if one.egress.in_force else f"{one.egress.name}, not known to be in force yet"


def _phases(one: Sandbox) -> list[PhaseRow]:
    """The parts of a cold start, which add up; the platform's phases overlap (``rollbox.recording.phases``)."""
    told = {name: one.timings_ms.get(name, 0) for name in (*PARTS, "ready_push")}
    told["start"] = max(0, told["start"] - told["pull"])
    told["node"] = max(0, told["ready_push"] - told["boot"])
    took = {words: told[name] for name, words in PARTS.items() if told[name]}
    longest = max(took.values(), default=1)
    return [PhaseRow(words, duration(ms), 100 * ms // longest) for words, ms in took.items()]


def _command(one: Command, now_ms: int) -> CommandRow:
    # A text for a shell stands as it was given.
    line = one.argv[0] if len(one.argv) == 1 else shlex.join(one.argv)
    shown = line if len(line) <= MOST_ARGV else f"{line[:MOST_ARGV]} …"
    how = "runs" if not one.end else f"{one.end} {one.exit_code}" if one.end == "exited" else one.end
    kind = "runs" if not one.end else "good" if (one.end, one.exit_code) == ("exited", 0) else "bad"
    return CommandRow(
        exec_id=one.exec_id,
        line=shown,
        kind=kind,
        how=how.replace("_", " "),
        age=duration(now_ms - one.started_at_ms),
        at=moment(one.started_at_ms),
        stdout=size(one.stdout_bytes),
        stderr=size(one.stderr_bytes),
    )
