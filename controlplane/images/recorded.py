"""Which recorded copies go, however much room the private registry has. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace

from controlplane.images.budget import YOUNG_MS, Budget, StoredImage, plan_removal
from controlplane.images.stored import RegistryImage


def plan_recorded(
    images: Mapping[str, RegistryImage],
    needed_by: Callable[[str, RegistryImage], Collection[str]],
    limit_bytes: int,
    now_ms: int,
) -> list[str]:
    """The names of those that go.

    That is what no verdict names, since starts of nobody are given it: a later list has taken its place, or no sandbox
    has started from it. And of an owner that has more than it may, what was not used for the longest time. Each owner
    has copies of its own. Nothing goes that is needed, or that was made or used lately: a sandbox may yet be started
    from it for its verdict.

    Args:
        images: what the registry has, by name.
        needed_by: what needs an image by its own digest.
        limit_bytes: of each owner; 0: no limit.
        now_ms: the time of day.
    """
    recorded = {name: one for name, one in images.items() if one.recorded}
    entries = {name: StoredImage(name, one.parts, one.used_ms, needed_by(name, one)) for name, one in recorded.items()}
    goes = {
        name: None
        for name, one in entries.items()
        if not recorded[name].offered and not one.named_by and now_ms >= one.last_used_ms + YOUNG_MS
    }
    for own in _too_much(recorded, entries, goes, limit_bytes) if limit_bytes else ():
        left = [one for one in own if one.digest not in goes]
        plan = plan_removal(left, Budget.of(limit_bytes), now_ms)
        goes |= dict.fromkeys(one.digest for one in plan.removals)
    return [*goes]


def _too_much(
    recorded: Mapping[str, RegistryImage], entries: Mapping[str, StoredImage], goes: Container[str], limit_bytes: int
) -> list[list[StoredImage]]:
    """What each owner with too much has; what is also another one's who has not stays."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, one in recorded.items():
        for owner in one.owners if name not in goes else ():
            found[owner].append(name)
    over = {owner for owner, own in found.items() if _bytes(entries[name] for name in own) > limit_bytes}
    shared = {name for name, one in recorded.items() if not over.issuperset(one.owners)}
    kept = {name: replace(entries[name], named_by=["another owner"]) for name in shared}
    return [[kept.get(name, entries[name]) for name in own] for owner, own in found.items() if owner in over]


def _bytes(entries: Iterable[StoredImage]) -> int:
    return sum({part: size for one in entries for part, size in one.parts.items()}.values())
