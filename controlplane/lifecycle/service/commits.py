"""``SandboxCommits``: images that owners make of their sandboxes, once for each key."""

import asyncio
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from controlplane.cluster import Commits, Committed, without_commits
from controlplane.errors import Problem
from controlplane.images import target
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.housekeeping.committed import CommittedImages
from controlplane.lifecycle.images.checkpoints import Checkpoints
from controlplane.lifecycle.service.commit_keys import CommitKeys, Outcome
from controlplane.lifecycle.service.owner_calls import OwnerCalls
from controlplane.model import Sandbox, State
from controlplane.telemetry import Metrics

# Of a call that joins one at another replica, which may have begun later.
LATER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class CommitWish:
    """What is to become an image.

    Attributes:
        name: as its owner gives it; empty: it is to be a checkpoint.
        max_bytes: of the layer.
        within_ms: then nothing is made.
        ttl_ms: of a checkpoint: how long sandboxes may be started from it.
    """

    sandbox_id: str
    name: str
    max_bytes: int
    within_ms: int
    ttl_ms: int = 0

    @property
    def asked(self) -> tuple[str, str, int, int]:
        """What is the same in each try of a call; how long the caller waits may differ from one to the next."""
        return (self.sandbox_id, self.name, self.max_bytes, self.ttl_ms)


class SandboxCommits:
    """Commits sandboxes for their owners.

    Args:
        commits: makes the images; None: that is not offered here.
        committed: knows how many bytes of them an owner may have.
        checkpoints: makes their names.
        keys: has what was done with a key at any replica.
        owner_calls: has the records.
        activity: a commit is a use of the sandbox.
        metrics: counts commits.
        group: owns commits with a key: a caller who hangs up comes back for them.
    """

    def __init__(
        self,
        commits: Commits | None,
        committed: CommittedImages,
        checkpoints: Checkpoints,
        keys: CommitKeys,
        *,
        owner_calls: OwnerCalls,
        activity: Activity,
        metrics: Metrics,
        group: asyncio.TaskGroup,
    ) -> None:
        self._commits = commits
        self._committed = committed
        self._checkpoints = checkpoints
        self._keys = keys
        self._owner_calls = owner_calls
        self._activity = activity
        self._metrics = metrics
        self._group = group
        self._log = structlog.get_logger("commits")
        self._calls: dict[tuple[str, str], tuple[CommitWish, asyncio.Task[Outcome]]] = {}

    async def commit(self, owner: str, wish: CommitWish, key: str | None = None) -> Committed:
        """Makes an image of a sandbox; with a key that was used before, the answer of then, for ten minutes.

        A call that is under way with the key, here or at another replica, is joined.

        Raises:
            Problem: sandbox_not_found, why it has ended, invalid_argument, conflict: it does not run yet, is being
                committed, or the key was used for something else; quota_exceeded; upstream_timeout; those of
                ``Commits.commit``.
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
        for _, task in self._calls.values():
            task.cancel()

    def _call(self, key: tuple[str, str], wish: CommitWish) -> asyncio.Task[Outcome]:
        known = self._calls.get(key)
        if known is None:
            task = self._group.create_task(self._once(key, wish), name=f"commit {wish.sandbox_id}")
            known = self._calls[key] = (wish, task)
            task.add_done_callback(lambda _: self._calls.pop(key, None))
        if known[0].asked != wish.asked:
            detail = "the idempotency key was used for another commit"
            raise Problem("conflict", detail, reason="other_parameters", field="Idempotency-Key")
        return known[1]

    async def _once(self, key: tuple[str, str], wish: CommitWish) -> Outcome:
        try:
            async with asyncio.timeout(wish.within_ms / 1000 + LATER_S):
                return await self._keys.once(*key, wish.asked, lambda: self._outcome(key[0], wish))
        except Problem as problem:
            return problem
        except TimeoutError:
            return _late(wish)

    async def _outcome(self, owner: str, wish: CommitWish) -> Outcome:
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
        if (commits := self._commits) is None:
            raise without_commits(f"{sandbox.id} cannot be made an image")
        name = self._name(commits.place, owner, sandbox, wish)
        squash = self._checkpoints.below(sandbox.spec.image) is not None
        self._activity.touch(sandbox.id)
        try:
            async with asyncio.timeout(wish.within_ms / 1000):
                return await self._within_quota(commits, owner, sandbox.id, name, wish.max_bytes, squash=squash)
        except TimeoutError as late:
            raise _late(wish) from late
        except Problem as problem:
            await self._judge(owner, wish.sandbox_id, problem)
        finally:
            self._activity.touch(sandbox.id)

    def _name(self, place: str, owner: str, sandbox: Sandbox, wish: CommitWish) -> str:
        if wish.name:
            return _target(place, owner, wish.name)
        one = self._checkpoints.new(sandbox.id, sandbox.spec.image, wish.ttl_ms)
        return one.name(place, owner)

    async def _within_quota(
        self, commits: Commits, owner: str, sandbox_id: str, name: str, max_bytes: int, *, squash: bool
    ) -> Committed:
        async with self._committed.room(owner, max_bytes) as most:
            try:
                return await commits.commit(sandbox_id, name, most, squash=squash)
            except Problem as problem:
                if problem.code != "payload_too_large":
                    raise
                if most == max_bytes:
                    problem.details["reason"] = "commit_too_large"
                    raise
                use = await self._committed.use(owner)
                raise self._committed.exceeded(owner, use, problem.detail) from problem

    async def _judge(self, owner: str, sandbox_id: str, problem: Problem) -> NoReturn:
        """Raises why a sandbox has ended, if it has: that is the cause of whatever the cluster says."""
        sandbox = await self._owner_calls.get(owner, sandbox_id)
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox) from problem
        raise problem


def _late(wish: CommitWish) -> Problem:
    within = f"{wish.within_ms / 1000:g} s"
    detail = f"no image of {wish.sandbox_id} was made within {within}; nothing of it is left: give it longer"
    return Problem("upstream_timeout", detail, sandbox_id=wish.sandbox_id)


def _target(place: str, owner: str, name: str) -> str:
    try:
        return target(place, owner, name)
    except ValueError as error:
        raise Problem("invalid_argument", f"name: {error}", field="name") from error
