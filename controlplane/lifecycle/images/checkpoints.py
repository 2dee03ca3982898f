"""``Checkpoints``: which image a create means that names one, and which one a sandbox was started from."""

from controlplane.clock import Clock
from controlplane.cluster import Commits
from controlplane.errors import Problem
from controlplane.images import Checkpoint, parse
from controlplane.lifecycle.images import Ownership
from controlplane.model import SandboxSpec


class Checkpoints:
    """The checkpoints of all owners.

    Args:
        commits: keeps them; None: there are none.
        ownership: says whose a name is.
        clock: the time of day.
    """

    def __init__(self, commits: Commits | None, ownership: Ownership, clock: Clock) -> None:
        self._commits = commits
        self._ownership = ownership
        self._clock = clock

    async def started_from(self, owner: str, spec: SandboxSpec) -> SandboxSpec:
        """The spec with the image of the checkpoint that it names, by its id or as an image; else as it is.

        Raises:
            Problem: checkpoint_not_found, also for one of another owner; checkpoint_expired; permission_denied: it is
                named as the image of another owner; those of a cluster that does not answer.
        Cost: a call to the cluster for a checkpoint, nothing else.
        """
        one = Checkpoint.read(spec.image) or self.below(spec.image)
        if one is None:
            return spec
        self._ownership.check(owner, spec.image)
        if self._commits is None:
            raise _unknown(one)
        if one.expires_at_ms <= self._clock.now_ms():
            detail = f"nothing starts from {one.id} any more"
            raise Problem("checkpoint_expired", detail, checkpoint=one.id, expired_at_ms=one.expires_at_ms)
        name = one.name(self._commits.place, owner)
        digest = await self._commits.kept.digest(name)
        if not digest:
            raise _unknown(one)
        return spec.model_copy(update={"image": f"{name}@{digest}"})

    def below(self, image: str) -> Checkpoint | None:
        """The checkpoint that an image of a sandbox is; None: it is another image."""
        return Checkpoint.of("" if self._commits is None else self._commits.place, parse(image))

    def new(self, sandbox_id: str, image: str, ttl_ms: int) -> Checkpoint:
        """One that is to be made of a sandbox.

        Args:
            sandbox_id: which one.
            image: what it was started from.
            ttl_ms: how long sandboxes may be started from it.

        Raises:
            Problem: unsupported: there are too many below each other.
        """
        try:
            return Checkpoint.new(sandbox_id, self.below(image), self._clock.now_ms() + ttl_ms)
        except ValueError as error:
            raise Problem("unsupported", f"{sandbox_id}: {error}", value="fewer checkpoints") from error


def _unknown(one: Checkpoint) -> Problem:
    return Problem("checkpoint_not_found", f"you have no checkpoint {one.id}", checkpoint=one.id)
