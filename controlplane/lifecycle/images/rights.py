"""``Rights``: whether an owner may have an image, whatever node or registry has it already.

Only the image's own registry knows, so it is asked with the owner's credentials, at every create. Where no owner has
credentials of its own for an image, all have the same right to it, and nobody is asked.
"""

import asyncio
from collections import OrderedDict
from typing import Final, TypeVar

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Keyrings, PrivateRegistry, Reference, Registry
from controlplane.registry import RegistryProblem

# For how long an answer holds: so late takes a right that was taken back effect.
GRANTED_MS: Final = 300_000
REFUSED_MS: Final = 10_000
# For how long a right that was proven holds while its registry does not answer.
AWAY_MS: Final = 3_600_000
# About 0.3 KiB each.
MOST_KEPT: Final = 32_768

T = TypeVar("T")

# Owner, and what it asks for.
_Key = tuple[str, str]


class Rights:
    """Asks registries for owners.

    Args:
        registry: asks them.
        keyrings: who has credentials of its own.
        clock: the time of day.
        group: owns the questions, which several creates may wait for.
        private: the installation's own registry, which no owner has credentials for; None: there is none.
    """

    def __init__(
        self,
        registry: Registry,
        keyrings: Keyrings,
        clock: Clock,
        group: asyncio.TaskGroup,
        private: PrivateRegistry | None = None,
    ) -> None:
        self._private = private
        self._registry = registry
        self._keyrings = keyrings
        self._clock = clock
        self._group = group
        self._asking: dict[_Key, asyncio.Task[bool | Problem]] = {}
        self._log = structlog.get_logger("images")
        # When the answer was given, and whether it was yes.
        self._answers: OrderedDict[_Key, tuple[int, bool]] = OrderedDict()
        # When a right to a repository was proven last: registries give rights to these, whatever the tag or digest.
        self._proven: OrderedDict[_Key, int] = OrderedDict()

    def close(self) -> None:
        """Breaks off all questions."""
        for task in self._asking.values():
            task.cancel()

    async def guarded(self, reference: Reference) -> bool:
        """Whether its registry says which owners may have this image.

        Never of the installation's own: copies there have no name for users, and commits are their owners' by name.
        """
        if self._private is not None and self._private.holds(reference):
            return False
        return await self._keyrings.guards(reference)

    async def check(self, owner: str, reference: Reference) -> None:
        """Checks that an owner may have an image. Cost: nothing where all may; else a request in five minutes.

        Raises:
            Problem: image_not_found: it is not there, or not for this owner, which is not told apart.
            RegistryProblem: image_pull_failed: its registry does not answer, and has not proven the right for an hour.
        """
        if not await self.guarded(reference):
            return None
        key, now_ms = (owner, str(reference)), self._clock.now_ms()
        at_ms, granted = self._answers.get(key, (-GRANTED_MS, False))
        if now_ms < at_ms + (GRANTED_MS if granted else REFUSED_MS):
            return await self._judge(owner, reference, granted=granted)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = self._group.create_task(self._ask(key, reference), name=f"right to {reference}")
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        await asyncio.wait({task})
        if task.cancelled():
            raise RegistryProblem("away", reference.registry, "not asked, this control plane is stopping")
        answer = task.result()
        if isinstance(answer, RegistryProblem):
            # Not the one that others get too, which would collect the tracebacks of all that raise it.
            raise answer.again()
        if isinstance(answer, Problem):
            raise Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, **answer.details)
        return await self._judge(owner, reference, granted=answer)

    async def _ask(self, key: _Key, reference: Reference) -> bool | Problem:
        place = (key[0], reference.name)
        try:
            await self._registry.digest(reference, key[0])
            granted = True
            _keep(self._proven, place, self._clock.now_ms())
        except RegistryProblem as problem:
            if problem.outcome not in ("absent", "denied"):
                proven = self._clock.now_ms() < self._proven.get(place, -AWAY_MS) + AWAY_MS
                return True if proven else await self._unasked(key[0], problem)
            granted = False
            self._proven.pop(place, None)
        except Problem as problem:
            return problem
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("right to an image not asked for", image=str(reference))
            return Problem("internal", f"the control plane failed to ask for the right to {reference}")
        _keep(self._answers, key, (self._clock.now_ms(), granted))
        return granted

    async def _judge(self, owner: str, reference: Reference, *, granted: bool) -> None:
        if not granted:
            ring = await self._keyrings.of(owner)
            raise not_yours(reference, "" if ring.find(reference) is not None else ring.missing)

    async def _unasked(self, owner: str, problem: RegistryProblem) -> RegistryProblem:
        """A registry that does not answer; with why it had to be asked, where credentials are missing."""
        ring = await self._keyrings.of(owner)
        if not ring.others_missing:
            return problem
        why = ring.missing or "see `rollbox doctor --cluster` or the log of the control plane"
        return problem.again(f". It was asked since an owner's image pull secret is not read ({why})")


def _keep(kept: OrderedDict[_Key, T], key: _Key, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MOST_KEPT:
        kept.popitem(last=False)


def not_yours(reference: Reference, missing: str = "") -> Problem:
    """The refusal of an image that is not there, or not for the owner who has named it.

    Args:
        reference: the image.
        missing: why credentials of this owner are not used, for people; empty: none are missing.
    """
    detail = f"registry {reference.registry}: it has no {reference}, or does not give it to you"
    if missing:
        detail = f"{detail}. Your credentials are not complete: {missing}"
    return Problem("image_not_found", detail, registry=reference.registry, option="image")
