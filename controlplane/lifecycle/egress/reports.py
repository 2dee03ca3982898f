"""What egress replicas report: policies that are in force, links, attempts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.egress.assignments import EgressAssignments
from controlplane.lifecycle.egress.log import AttemptLog
from controlplane.lifecycle.record import changes
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.model import Sandbox
from controlplane.wire import egress_pb2 as wire

# How many records are changed side by side: as many as go to the store in one message.
TOGETHER: Final = 128
MOST_DETAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Link:
    """Whether a sandbox has its link, as its replica has told last; ``detail``: why not."""

    up: bool
    detail: str = ""
    replica: str = ""


class Reports:
    """Takes reports. That a policy is in force is a fact of the record, so that every control plane hears of it.

    A policy that allows something is in force only when the sandbox has its link: without it nothing gets out.
    """

    def __init__(self, assignments: EgressAssignments, ledger: Ledger, log: AttemptLog) -> None:
        self._assignments = assignments
        self._attempts = log
        self._ledger = ledger
        self._links: dict[str, Link] = {}
        self._early: dict[str, tuple[int, int]] = {}  # applied before there was a link: revision and cut
        self._log = structlog.get_logger("egress")

    def link(self, sandbox_id: str) -> Link | None:
        """The sandbox's link; None: its replica reports to another control plane, or has not yet."""
        return self._links.get(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Drops what is known of a sandbox."""
        self._links.pop(sandbox_id, None)
        self._early.pop(sandbox_id, None)

    async def take(self, report: wire.EgressReport) -> None:
        """Takes one report; returns when what it says is in force is on record.

        Raises:
            Problem: the store does not answer; the report may be repeated.
        """
        if report.dropped_attempts:
            self._log.warning(
                "an egress replica has dropped attempts", replica=report.egress_id, attempts=report.dropped_attempts
            )
        # First what callers wait for.
        await self._take_applied(report)
        await self._attempts.take(report.attempts)

    async def _take_applied(self, report: wire.EgressReport) -> None:
        in_force: dict[str, tuple[int, int]] = {}
        for linked in report.links:
            if linked.sandbox_id in self._assignments.sandboxes:
                self._take_link(linked, report.egress_id)
            if linked.up and (early := self._early.pop(linked.sandbox_id, None)) is not None:
                in_force[linked.sandbox_id] = early
        for applied in report.applied:
            sandbox = self._assignments.sandboxes.get(applied.sandbox_id)
            if sandbox is not None and self._waits_for_link(sandbox):
                self._early[sandbox.id] = (applied.revision, applied.cut)
            elif sandbox is not None:
                in_force[sandbox.id] = (applied.revision, applied.cut)
        await _side_by_side([self._confirm(one, *what) for one, what in in_force.items() if self._is_news(one, *what)])

    def _take_link(self, linked: wire.Linked, replica: str) -> None:
        known = self._links.get(linked.sandbox_id)
        # One that a sandbox has moved away from says so after the link of its successor: taken for a loss of that one,
        # no later switch would ever be in force.
        if linked.up or known is None or not known.up or known.replica == replica:
            self._links[linked.sandbox_id] = Link(linked.up, linked.detail[:MOST_DETAIL_CHARS], replica)

    def _waits_for_link(self, sandbox: Sandbox) -> bool:
        link = self._links.get(sandbox.id)
        return link is not None and not link.up and sandbox.egress.name != "offline"

    def _is_news(self, sandbox_id: str, revision: int, cut: int) -> bool:
        sandbox = self._assignments.sandboxes.get(sandbox_id)
        return sandbox is not None and sandbox.egress.confirmed(revision, cut) != sandbox.egress

    def _confirm(self, sandbox_id: str, revision: int, cut: int) -> Callable[[], Awaitable[Sandbox | None]]:
        def confirmed(record: Sandbox) -> Sandbox:
            return changes.egress_applied(record, revision, cut)

        known = self._assignments.sandboxes.get(sandbox_id)
        return lambda: retried_while_away(lambda: self._ledger.change(sandbox_id, confirmed, known))


async def _side_by_side(calls: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Makes all calls, some at a time; the first failure is raised once those are over."""
    for at in range(0, len(calls), TOGETHER):
        answers = await asyncio.gather(*(call() for call in calls[at : at + TOGETHER]), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Problem):
                raise answer
            if isinstance(answer, BaseException):
                raise answer
