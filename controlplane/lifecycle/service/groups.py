"""Groups: sandboxes with the same spec that one call creates, one for each sample; found again by their labels."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.admission.candidates import DIGEST
from controlplane.lifecycle.ending.endings import Deleted
from controlplane.lifecycle.record.callers import call_of
from controlplane.lifecycle.service.sandboxes import Sandboxes
from controlplane.model import GROUP, LIVE, Sandbox, SandboxSpec

SAMPLE: Final = "rollbox.sample"
# Codes of failures of the call and not of its sandboxes: when the call is repeated it finds them by their keys.
_OF_THE_CALL: Final = frozenset({"draining", "upstream_timeout", "stream_interrupted"})
# The most digits that the number of a sample has.
_MOST_DIGITS: Final = 4

# By sample number, ascending.
Members = Mapping[int, Sandbox | Problem]


class Groups:
    """Creates, reads and deletes groups for the API."""

    def __init__(self, service: Sandboxes) -> None:
        self._service = service

    async def create(
        self,
        owner: str,
        name: str,
        spec: SandboxSpec,
        count: int,
        by_ms: int | None = None,
        *,
        partial: bool,
        caller: str,
        begun: list[Sandbox],
        replaced: int = 0,
    ) -> Members:
        """Creates ``count`` sandboxes concurrently and returns when the last one is ready or has failed.

        A repeated call waits for and returns the same sandboxes: the idempotency key of each is made of the group's
        name and its number. With ``partial`` a failure is returned in its member's place. Without it the first failure
        withdraws all creates of this call; sandboxes that another call has asked for too live on.

        Args:
            owner: the owner of the group.
            name: the name of the group.
            spec: the spec of each of its sandboxes.
            count: how many sandboxes.
            by_ms: the caller's deadline, as in ``Creates.request``.
            partial: whether the call succeeds when only some of the sandboxes do.
            caller: this try of the call (``callers.new_caller``).
            begun: receives the sandboxes that have to be abandoned if the caller disconnects.
            replaced: as in ``Creates.create``.

        Raises:
            Problem: the first failure, unless ``partial``; conflict, when the name was used with other parameters.
        """
        made: dict[int, Sandbox | Problem] = {}

        async def one(sample: int) -> None:
            try:
                wish, key = _member(spec, name, sample), _key(name, sample)
                created = await self._service.create(
                    owner, wish, key, by_ms=by_ms, caller=caller, begun=begun, replaced=replaced
                )
                made[sample] = created.sandbox
            except Problem as problem:
                if not partial or _of_the_call(problem):
                    raise
                made[sample] = problem

        first: Problem | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for sample in range(count):
                    group.create_task(one(sample))
        except* Problem as failures:
            first = _first(failures)
        if first is None:
            return {sample: made[sample] for sample in range(count)}
        if not _of_the_call(first):
            await self.withdraw(owner, name, count, call_of(caller))
        elif first.code != "draining":
            # The caller may not repeat the call.
            for sandbox in begun:
                self._service.abandon(sandbox, caller)
        raise first

    async def get(self, owner: str, name: str) -> Members:
        """The group's sandboxes; waits for those that are starting. The place of an ended one holds the end's cause.

        Owners can set labels themselves: sandboxes whose sample label is no valid number are left out.

        Raises:
            Problem: not_found.
        """
        found = await self._service.find(owner, {GROUP: name}, None)
        # Oldest first: of a sample that was created again the newest sandbox counts.
        latest = {sample: sandbox for sandbox in found if (sample := _sample(sandbox)) is not None}
        if not latest:
            raise Problem("not_found", f"there is no group {name}")
        settled = await asyncio.gather(*(self._settled(latest[sample]) for sample in sorted(latest)))
        return dict(zip(sorted(latest), settled, strict=True))

    async def delete(self, owner: str, name: str, count: int = 0, *, wait_s: float = 0.0) -> Deleted:
        """Deletes all sandboxes of the group. An unknown group is success: nothing is deleted.

        Args:
            owner: of the group.
            name: of the group.
            count: also withdraws the keys of that many samples, for creates that may still arrive.
            wait_s: as in ``Sandboxes.delete``, in seconds.
        """
        taken = await self._delete_keys(owner, name, range(count))
        found = await self._service.delete_all(owner, {GROUP: name}, wait_s=wait_s)
        return _merged([*taken, found])

    async def withdraw(self, owner: str, name: str, count: int, call_id: str) -> Deleted:
        """Withdraws the creates of one call; see ``Sandboxes.withdraw``.

        Args:
            owner: of the group.
            name: of the group.
            count: how many samples the call has asked for.
            call_id: the id that the client has given the call.
        """
        taken = (self._service.withdraw(owner, _key(name, sample), call_id) for sample in range(count))
        return _merged(await asyncio.gather(*taken))

    async def _delete_keys(self, owner: str, name: str, samples: Iterable[int]) -> list[Deleted]:
        return await asyncio.gather(*(self._service.delete_key(owner, _key(name, sample)) for sample in samples))

    async def _settled(self, sandbox: Sandbox) -> Sandbox | Problem:
        try:
            return await self._service.ready(sandbox) if sandbox.state in LIVE else _ended(sandbox)
        except Problem as problem:
            if _of_the_call(problem):
                raise
            return problem


def _merged(parts: Sequence[Deleted]) -> Deleted:
    # A sandbox that one part has ended without waiting may have timed out in another part, which waited for it.
    failed = {one: why for deleted in parts for one, why in deleted.failed.items()}
    ids = dict.fromkeys(sandbox_id for deleted in parts for sandbox_id in deleted.ids if sandbox_id not in failed)
    return Deleted(list(ids), failed)


def _ended(sandbox: Sandbox) -> Problem:
    if sandbox.end is None:
        return Problem("internal", f"{sandbox.id} has ended and has no cause")
    return sandbox.end.problem(sandbox)


def _member(spec: SandboxSpec, name: str, sample: int) -> SandboxSpec:
    return spec.model_copy(update={"labels": {**spec.labels, GROUP: name, SAMPLE: str(sample)}})


def _sample(sandbox: Sandbox) -> int | None:
    label = sandbox.spec.labels.get(SAMPLE, "0")
    return int(label) if label.isascii() and label.isdigit() and len(label) <= _MOST_DIGITS else None


def _key(name: str, sample: int) -> str:
    return f"{name}/{sample}"


def _first(failures: BaseExceptionGroup[Problem]) -> Problem:
    """The failure to report: one of the call, since its retry finds the rest; else any code before ``deleted``.

    A ``deleted`` is usually only a consequence of another member's failure.
    """
    problems: list[Problem] = []
    for failure in failures.exceptions:
        problems += [_first(failure)] if isinstance(failure, BaseExceptionGroup) else [failure]
    return min(problems, key=lambda one: (not _of_the_call(one), one.code == "deleted"))


def _of_the_call(problem: Problem) -> bool:
    # A refused digest makes the gateway repeat the call with the values.
    return problem.code in _OF_THE_CALL or problem.details.get("field") == DIGEST
