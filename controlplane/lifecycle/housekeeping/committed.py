"""``CommittedImages``: what owners have made of sandboxes, how many bytes of that they may have, and how one goes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.cluster import Commits, CommittedImage, without_commits
from controlplane.cluster.documents import Documents
from controlplane.errors import Problem
from controlplane.images import Checkpoint, Reference, folder, is_foreign, own_reference, parse
from controlplane.lifecycle.admission.quotas import Quotas
from controlplane.lifecycle.housekeeping.commit_byte_budget import CommitByteBudget
from controlplane.lifecycle.pools.declared import declared
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import GROUP, LIVE, Sandbox
from controlplane.model.units import size
from controlplane.telemetry import Metrics

# How long after its time a checkpoint is removed at the earliest; the start timeout unless a create says another one.
LATE_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class CommittedUse:
    """What an owner has committed.

    Attributes:
        place: below which they are.
        images: oldest first.
        used_bytes: of their own layers.
        limit_bytes: the most of these; 0: no limit.
    """

    place: str
    images: Sequence[CommittedImage]
    used_bytes: int
    limit_bytes: int


class CommittedImages:
    """The committed images of all owners.

    Args:
        commits: keeps them; None: there are none.
        store: has the sandboxes that run from them.
        documents: has the pools that start from them.
        quotas: says how many bytes an owner may have.
        shares: has what commits that are under way may write.
        metrics: counts removals.
        limit_bytes: for owners whose quota does not say it; 0: no limit.
    """

    def __init__(
        self,
        commits: Commits | None,
        store: RecoveringStore,
        documents: Documents,
        quotas: Quotas,
        *,
        shares: CommitByteBudget,
        metrics: Metrics,
        limit_bytes: int,
    ) -> None:
        self._commits = commits
        self._store = store
        self._documents = documents
        self._quotas = quotas
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._log = structlog.get_logger("commits")
        self._shares = shares

    async def use(self, owner: str) -> CommittedUse:
        """An owner's images and their bytes.

        Raises:
            Problem: unsupported: none are made here.
        """
        commits = self._there()
        place, images = commits.place, await commits.kept.below(f"{commits.place}/{folder(owner)}")
        ordered = sorted(images, key=lambda one: (one.created_at_ms, one.digest))
        return CommittedUse(place, ordered, sum(one.size_bytes for one in ordered), self._limit(owner))

    @asynccontextmanager
    async def room(self, owner: str, max_bytes: int) -> AsyncIterator[int]:
        """What a new layer may have, at most ``max_bytes``; no other commit of the owner gets it until the block ends.

        Where there is less than that, it waits for the owner's other commits to end, and then gets what there is.

        Raises:
            Problem: quota_exceeded: nothing is left.
        """
        if not self._limit(owner):
            yield max_bytes
            return

        async def left() -> int:
            use = await self.use(owner)
            return use.limit_bytes - use.used_bytes if use.limit_bytes else max_bytes

        async with self._shares.taken(owner, max_bytes, left) as granted:
            if granted <= 0:
                raise self.exceeded(owner, await self.use(owner), "no image was made")
            yield granted

    def exceeded(self, owner: str, use: CommittedUse, why: str) -> Problem:
        """The refusal of a commit that would be too much."""
        detail = (
            f"{why}: {owner} has {size(use.used_bytes)} of at most {size(use.limit_bytes)} in {len(use.images)} images "
            "that were made of sandboxes. Remove some (`rollbox image commits`, `rollbox image remove`), or an "
            f"operator raises the limit with `rollbox quota set {owner} --commits SIZE`"
        )
        knob = "commit_bytes"
        return Problem("quota_exceeded", detail, resource=knob, used=use.used_bytes, limit=use.limit_bytes, knob=knob)

    async def remove(self, owner: str, name: str) -> CommittedImage | None:
        """Removes an owner's image with all its names; None: there is none.

        Args:
            owner: whose it is.
            name: with or without the place of commits; a digest in it finds one that has lost its name, too.

        Raises:
            Problem: invalid_argument; permission_denied: it is another owner's; conflict: a sandbox, a pool or another
                image needs it; unsupported: none are made here.
        """
        try:
            image = await self._removed(owner, name)
        except Problem as problem:
            if problem.code == "conflict":
                self._metrics.image_removed("commit", "in_use")
            raise
        self._metrics.image_removed("commit", "gone" if image is None else "removed")
        return image

    async def _removed(self, owner: str, name: str) -> CommittedImage | None:
        use = await self.use(owner)
        wanted = _own(use.place, owner, name)
        image = next((one for one in use.images if _means(wanted, one)), None)
        if image is None:
            return None
        if above := [one for one in use.images if image.digest in one.built_on]:
            names = ", ".join(_shown(one) for one in above[:3])
            raise _needed(image, f"{len(above)} images are built on it, and keep its layer: {names}")
        if users := await self._users(image):
            raise _needed(image, f"it is used by {', '.join(users)}")
        await self._there().kept.remove(image)
        return image

    async def expire(self, now_ms: int) -> None:
        """Removes checkpoints whose time is over, but for those that something still needs.

        Not at once: a create that was let in at the last moment may not be on record yet.
        """
        commits = self._there()
        for image in await commits.kept.expired(now_ms - LATE_MS):
            one = checkpoint_of(commits.place, image)
            if one is None or await self._users(image):
                continue
            try:
                await commits.kept.remove(image)
            except Problem as problem:
                self._metrics.image_removed("commit", "in_use" if problem.code == "conflict" else "failed")
                self._log.warning("an expired checkpoint is not removed", checkpoint=one.id, detail=problem.detail)
            else:
                self._metrics.image_removed("commit", "removed")
                self._log.info("a checkpoint has expired", checkpoint=one.id, bytes=image.size_bytes)

    def _there(self) -> Commits:
        if self._commits is None:
            raise without_commits("there are no images of sandboxes")
        return self._commits

    def _limit(self, owner: str) -> int:
        quota = self._quotas.of(owner)
        return (quota.commit_bytes if quota is not None else None) or self._limit_bytes

    async def _users(self, image: CommittedImage) -> Sequence[str]:
        """What needs an image, for people: a few sandboxes, with their groups, and pools."""
        sandboxes = [one for one in await self._store.find(None, {}, LIVE) if _runs(one, image)]
        groups = {one.spec.labels[GROUP] for one in sandboxes if GROUP in one.spec.labels}
        pools = [declared(one) for one in await self._documents.list("pools")]
        used = [one.name for one in pools if one.spec is not None and _means(parse(one.spec.template.image), image)]
        more = [f"{len(sandboxes) - 3} more sandboxes"] if len(sandboxes) > 3 else []
        return [
            *(f"sandbox {one.id}" for one in sandboxes[:3]),
            *more,
            *(f"group {one}" for one in sorted(groups)[:3]),
            *(f"pool {one}" for one in used[:3]),
        ]


def checkpoint_of(place: str, image: CommittedImage) -> Checkpoint | None:
    """The checkpoint that an image is; None: it is one with a name."""
    return Checkpoint.among(place, image.name, image.tags)


def _own(place: str, owner: str, name: str) -> Reference:
    if (one := Checkpoint.read(name)) is not None:
        name = one.name(place, owner)
    try:
        if is_foreign(place, owner, parse(name)):
            raise Problem("permission_denied", f"{name} is an image that another owner has committed", image=name)
        return own_reference(place, owner, name)
    except ValueError as error:
        raise Problem("invalid_argument", f"name: {error}", field="name") from error


def _means(reference: Reference, image: CommittedImage) -> bool:
    if reference.name != image.name:
        return False
    return reference.digest == image.digest if reference.digest else reference.tag in image.tags


def _runs(sandbox: Sandbox, image: CommittedImage) -> bool:
    if image.digest in (sandbox.image_digest, sandbox.image_ran):
        return True
    # The digest of its image is not resolved yet, or was never known: then its name decides.
    return not sandbox.image_digest and _means(parse(sandbox.spec.image), image)


def _shown(image: CommittedImage) -> str:
    return f"{image.name}:{image.tags[0]}" if image.tags else f"{image.name}@{image.digest}"


def _needed(image: CommittedImage, why: str) -> Problem:
    return Problem("conflict", f"{_shown(image)} is not removed: {why}", image=image.name, digest=image.digest)
