"""``SandboxCommits``: images that owners make of their sandboxes, once for each key."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Cluster, Committed
from controlplane.errors import Problem
from controlplane.images import target
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.service.committed import CommittedImages
from controlplane.lifecycle.service.owner_calls import OwnerCalls
from controlplane.model import State
from controlplane.telemetry import Metrics

# How long a repetition of a key is answered what the first call was.
KEPT_MS: Final = 600_000
MOST_KEPT: Final = 1024

_Outcome = Committed | Problem


@dataclass(frozen=True, slots=True)
class CommitWish:
    """What is to become an image.

    Attributes:
        name: as its owner gives it.
        max_bytes: of the layer.
        within_ms: then nothing is made.
    """

    sandbox_id: str
    name: str
    max_bytes: int
    within_ms: int


class SandboxCommits:
    """Commits sandboxes for their owners.

    Args:
        cluster: makes the images.
        committed: knows how many bytes of them an owner may have.
        owner_calls: has the records.
        activity: a commit is a use of the sandbox.
        clock: the time of day.
        metrics: counts commits.
        group: owns commits with a key: a caller who hangs up comes back for them.
    """

    def __init__(
        self,
        cluster: Cluster,
        committed: CommittedImages,
        owner_calls: OwnerCalls,
        activity: Activity,
        clock: Clock,
        *,
        metrics: Metrics,
        group: asyncio.TaskGroup,
    ) -> None:
        self._cluster = cluster
        self._committed = committed
        self._owner_calls = owner_calls
        self._activity = activity
        self._clock = clock
        self._metrics = metrics
        self._group = group
        self._log = structlog.get_logger("commits")
        self._calls: OrderedDict[tuple[str, str], tuple[CommitWish, asyncio.Task[_Outcome], int]] = OrderedDict()

    async def commit(self, owner: str, wish: CommitWish, key: str | None = None) -> Committed:
        """Makes an image of a sandbox; with a key that was used before, the answer of then, for ten minutes.

        Another replica does not know the key; there the sandbox is committed again, and the image takes the place of
        the one before.

        Raises:
            Problem: sandbox_not_found, why it has ended, invalid_argument, conflict: it does not run yet, is being
                committed, or the key was used for something else; quota_exceeded; upstream_timeout; those of
                ``Cluster.commit``.
        """
        if key is None:
            outcome = await self._outcome(owner, wish)
        else:
            outcome = await asyncio.shield(self._call((owner, key), wish))
        if isinstance(outcome, Problem):
            raise outcome
        return outcome

    def close(self) -> None:
        """Breaks off what is under way."""
        for _, task, _ in self._calls.values():
            task.cancel()

    def _call(self, key: tuple[str, str], wish: CommitWish) -> asyncio.Task[_Outcome]:
        known = self._calls.get(key)
        if known is not None and self._again(known[1], known[2]):
            known = None
        if known is None:
            task = self._group.create_task(self._outcome(key[0], wish), name=f"commit {wish.sandbox_id}")
            known = self._calls[key] = (wish, task, self._clock.now_ms() + KEPT_MS)
            self._calls.move_to_end(key)
            while len(self._calls) > MOST_KEPT and next(iter(self._calls.values()))[1].done():
                self._calls.popitem(last=False)
        # How long the caller waits may differ from one try to the next.
        first = known[0]
        if (first.sandbox_id, first.name, first.max_bytes) != (wish.sandbox_id, wish.name, wish.max_bytes):
            raise Problem("conflict", "the idempotency key was used for another commit", field="Idempotency-Key")
        return known[1]

    def _again(self, task: asyncio.Task[_Outcome], until_ms: int) -> bool:
        """Whether a key is free again: what has failed left nothing, so its repetition tries again."""
        failed = task.done() and (task.cancelled() or isinstance(task.result(), Problem))
        return failed or (task.done() and self._clock.now_ms() >= until_ms)

    async def _outcome(self, owner: str, wish: CommitWish) -> _Outcome:
        try:
            committed = await self._commit(owner, wish)
        except Problem as problem:
            self._metrics.committed(problem.code)
            return problem
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("commit failed", sandbox_id=wish.sandbox_id)
            self._metrics.committed("internal")
            return Problem("internal", f"the commit of {wish.sandbox_id} failed in the control plane")
        self._metrics.committed("ok")
        return committed

    async def _commit(self, owner: str, wish: CommitWish) -> Committed:
        sandbox = await self._owner_calls.alive(owner, wish.sandbox_id)
        if sandbox.state is not State.RUNNING:
            detail = f"{sandbox.id} is {sandbox.state}: only a sandbox that runs can be made an image"
            raise Problem("conflict", detail, sandbox_id=sandbox.id)
        # Where nothing is committed, the cluster says what would offer it.
        name = _target(self._cluster.commits, owner, wish.name) if self._cluster.commits else wish.name
        self._activity.touch(sandbox.id)
        try:
            async with asyncio.timeout(wish.within_ms / 1000):
                return await self._within_quota(owner, sandbox.id, name, wish.max_bytes)
        except TimeoutError as late:
            detail = f"no image of {sandbox.id} was made within {wish.within_ms} ms; nothing of it is left"
            raise Problem("upstream_timeout", detail, sandbox_id=sandbox.id) from late
        except Problem as problem:
            await self._judge(owner, wish.sandbox_id, problem)
        finally:
            self._activity.touch(sandbox.id)

    async def _within_quota(self, owner: str, sandbox_id: str, name: str, max_bytes: int) -> Committed:
        if not self._cluster.commits:
            return await self._cluster.commit(sandbox_id, name, max_bytes)
        async with self._committed.room(owner, max_bytes) as most:
            try:
                return await self._cluster.commit(sandbox_id, name, most)
            except Problem as problem:
                if problem.code != "payload_too_large" or most == max_bytes:
                    raise
                use = await self._committed.use(owner)
                raise self._committed.exceeded(owner, use, problem.detail) from problem

    async def _judge(self, owner: str, sandbox_id: str, problem: Problem) -> NoReturn:
        """Raises why a sandbox has ended, if it has: that is the cause of whatever the cluster says."""
        sandbox = await self._owner_calls.get(owner, sandbox_id)
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox_id) from problem
        raise problem


def _target(place: str, owner: str, name: str) -> str:
    try:
        return target(place, owner, name)
    except ValueError as error:
        raise Problem("invalid_argument", f"name: {error}", field="name") from error
