"""What ends a run of the hosts' suites: which host ran in which version, what is broken and what is newer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.support.junit import Record

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
# Of what went wrong: characters of a line, and lines.
_SHOWN, _LINES = 300, 12


@dataclass(frozen=True)
class Tried:
    """What a run has seen of a host.

    Attributes:
        title: of the host.
        record: what its suite did; None where no test of it has run.
        pinned: the version that is pinned; empty where the host is a checkout.
        fits: whether the adapter fits the host's types; None where that was not looked at.
        why: the suite has no record, or the types do not fit.
        left_out: why the host was not tried.
        newer: packages of its environment that are not as they are pinned, by name: there, and pinned.
    """

    title: str
    record: Record | None = None
    pinned: str = ""
    fits: bool | None = None
    why: str = ""
    left_out: str = ""
    newer: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the suite's tests that failed."""
        tests = self.record.tests if self.record else ()
        return tuple(dict.fromkeys(one.name for one in tests if one.outcome == "failed"))

    @property
    def broken(self) -> bool:
        """Whether anything of it did not work."""
        return bool(self.failed or self.why or self.fits is False)


def table(hosts: Sequence[Tried]) -> Iterator[str]:
    """The lines of the table, and of each broken host why, and what is newer than what is pinned."""
    yield f"{'host':<16} {'version':<28} {'passed':>6} {'failed':>6}  {'types':<6}"
    yield from (_row(one).rstrip() for one in hosts)
    for one in hosts:
        if one.broken:
            yield from ("", f"{one.title}:", *_reasons(one))


def pins(text: str) -> dict[str, tuple[str, ...]]:
    """The versions in a list of packages, by their names; each version of Python may have its own."""
    found: dict[str, tuple[str, ...]] = {}
    for name, version in _PIN.findall(text):
        key = re.sub("[-_.]+", "-", name).lower()
        found[key] = (*found.get(key, ()), version)
    return found


def changed(there: Mapping[str, Sequence[str]], pinned: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    """The packages of both lists that are not as pinned, by name: the version there, and the one that is pinned."""
    both = sorted(there.keys() & pinned.keys())
    return {name: (there[name][0], pinned[name][-1]) for name in both if there[name][0] not in pinned[name]}


def _row(one: Tried) -> str:
    if one.left_out:
        return f"{one.title:<16} left out: {one.left_out}"
    types = {True: "fit", False: "differ", None: ""}[one.fits]
    verdict = "BROKEN" if one.broken else ""
    if one.record is None:
        return f"{one.title:<16} {'no test has run':<28} {'':>6} {'':>6}  {types:<6}  {verdict}"
    version = one.record.name
    if one.pinned and one.pinned != version.partition(",")[0]:
        version += f" (pinned: {one.pinned})"
    passed = sum(test.outcome == "passed" for test in one.record.tests)
    return f"{one.title:<16} {version:<28} {passed:>6} {len(one.failed):>6}  {types:<6}  {verdict}"


def _reasons(one: Tried) -> Iterator[str]:
    tests = one.record.tests if one.record else ()
    for test in tests:
        if test.outcome == "failed":
            yield f"  {test.module}.{test.name}: {_last(test.said)}"
    if one.why:
        yield from (f"  {line[:_SHOWN]}" for line in one.why.splitlines()[:_LINES])
    if one.newer:
        listed = ", ".join(f"{name} {there} ({pinned})" for name, (there, pinned) in one.newer.items())
        yield f"  not as pinned: {listed}"


def _last(said: str) -> str:
    """Of what a failed test said the line with the error."""
    lines = [line[1:].strip() for line in said.splitlines() if line.startswith("E ")]
    return (lines[0] if lines else said.strip().rpartition("\n")[2])[:_SHOWN]
