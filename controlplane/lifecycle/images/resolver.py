"""``Resolver``: names to digests, remembered for a minute; registries that do not answer delay nobody for long."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Reference, Registry
from controlplane.registry import RegistryProblem

# How long a tag's digest is taken for its digest; a refusal is forgotten sooner, since somebody may be correcting it.
TAG_MS: Final = 60_000
REFUSAL_MS: Final = 10_000
# After a registry gave no answer it is asked again so much later, and nobody waits for that.
AWAY_MS: Final = 15_000
# What a start waits for a registry at most; a guess: they answer in tenths of a second.
WAIT_S: Final = 2.0
# Of names; about 1 KiB each. Runs with 20,000 images are known.
MOST_KEPT: Final = 32_768
# Registries: their names come from users.
MOST_AWAY: Final = 1024

_Answer = str | Problem
# Owner (empty: all are told the same) and reference.
_Name = tuple[str, str]
# Whose account a registry puts off, and which registry it is. No owner's name begins with a colon.
_Place = tuple[str, str]
_ALL: Final = ":all"


class Resolver:
    """Resolves references by asking their registries.

    Args:
        registry: asks them.
        clock: the time of day.
        architectures: of the machines that sandboxes may run on; empty: not known.
        wait_for_answer: whether a start waits for as long as a registry takes.
        group: owns the questions, which several starts may wait for.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        architectures: Callable[[], Collection[str]],
        group: asyncio.TaskGroup,
        *,
        wait_for_answer: bool,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._architectures = architectures
        self._group = group
        self._wait_s = None if wait_for_answer else WAIT_S
        self._answers: OrderedDict[_Name, tuple[_Answer, int]] = OrderedDict()
        self._asking: dict[_Name, asyncio.Task[_Answer]] = {}
        self._away: OrderedDict[_Place, tuple[RegistryProblem, int]] = OrderedDict()
        self._layers: OrderedDict[str, Mapping[str, int]] = OrderedDict()
        self._log = structlog.get_logger("images")

    def close(self) -> None:
        """Breaks off all questions."""
        for task in self._asking.values():
            task.cancel()

    def layers(self, digest: str) -> Mapping[str, int]:
        """The layers of an image that was resolved lately, with their bytes; empty: not known."""
        return self._layers.get(digest, {})

    async def resolve(self, reference: Reference, owner: str = "", *, patient: bool = False) -> str:
        """The digest that is meant, as this owner is told; of an image that can run here.

        Args:
            reference: to be resolved.
            owner: who asks.
            patient: whether to wait for as long as the registry takes, since nothing can be done without its answer.

        Raises:
            Problem: unsupported, no sandbox can start from it; RegistryProblem, its registry does not say.
        """
        answer = self._known(reference, owner)
        if answer is None:
            answer = await self._asked(reference, owner, None if patient else self._wait_s)
        if isinstance(answer, Problem):
            # Not the kept one itself, which would collect the tracebacks of all that raise it.
            raise (
                answer.again()
                if isinstance(answer, RegistryProblem)
                else Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, option="image")
            )
        return answer

    def _known(self, reference: Reference, owner: str) -> _Answer | None:
        answer, until_ms = self._answers.get((owner, str(reference)), (None, 0))
        return answer if self._clock.now_ms() < until_ms else None

    async def _asked(self, reference: Reference, owner: str, wait_s: float | None) -> _Answer:
        name = (owner, str(reference))
        away, until_ms = self._put_off_for(owner, reference.registry)
        if away is not None and away.outcome == "away" and wait_s is None and self._wait_s is not None:
            # What other starts did not wait for says nothing to one that does.
            away = None
        if away is not None and self._clock.now_ms() < until_ms:
            return away
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = self._group.create_task(
                self._ask(reference, owner), name=f"resolve {reference}"
            )
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        if away is not None and wait_s is not None:
            # Another one finds out whether it is back, not this start.
            self._put_off(away, owner, AWAY_MS)
            return away
        done, _ = await asyncio.wait({task}, timeout=wait_s)
        if not done:
            slow = RegistryProblem("away", reference.registry, f"no answer within {WAIT_S:.0f} s")
            self._put_off(slow, owner, AWAY_MS)
            return slow
        return task.result() if not task.cancelled() else RegistryProblem("away", reference.registry, "not asked")

    async def _ask(self, reference: Reference, owner: str) -> _Answer:
        answer: _Answer
        kept_ms = TAG_MS
        try:
            answer = reference.digest or await self._registry.digest(reference, owner)
            self._note(answer, await self._registry.check(reference, answer, self._architectures(), owner))
        except RegistryProblem as problem:
            if problem.outcome in ("away", "limited"):
                pause_ms = AWAY_MS if problem.pause_s is None else max(1000, round(problem.pause_s * 1000))
                self._put_off(problem, owner, pause_ms)
                return problem
            answer, kept_ms = problem, REFUSAL_MS
        except Problem as problem:
            answer, kept_ms = problem, REFUSAL_MS
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("image not resolved", image=str(reference))
            return Problem("internal", f"the control plane failed to resolve {reference}")
        for whose in (_ALL, owner):
            self._away.pop((whose, reference.registry), None)
        self._keep((owner, str(reference)), answer, kept_ms)
        return answer

    def _keep(self, name: _Name, answer: _Answer, kept_ms: int) -> None:
        self._answers[name] = (answer, self._clock.now_ms() + kept_ms)
        self._answers.move_to_end(name)
        if len(self._answers) > MOST_KEPT:
            self._answers.popitem(last=False)

    def _note(self, digest: str, layers: Mapping[str, int]) -> None:
        self._layers[digest] = layers
        self._layers.move_to_end(digest)
        if len(self._layers) > MOST_KEPT:
            self._layers.popitem(last=False)

    def _put_off_for(self, owner: str, registry: str) -> tuple[RegistryProblem | None, int]:
        """Why an owner's questions do not reach a registry, and until when none is asked (Unix ms)."""
        found = [one for whose in (_ALL, owner) if (one := self._away.get((whose, registry))) is not None]
        return max(found, key=lambda one: one[1], default=(None, 0))

    def _put_off(self, problem: RegistryProblem, owner: str, pause_ms: int) -> None:
        # A registry limits an account, or all that ask without one.
        place = (owner if problem.outcome == "limited" else _ALL, problem.registry)
        if place not in self._away:
            self._log.warning("registry does not answer, images run by their names", detail=problem.detail)
        self._away[place] = (problem, self._clock.now_ms() + pause_ms)
        if len(self._away) > MOST_AWAY:
            self._away.popitem(last=False)
