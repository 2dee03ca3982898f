"""Which recorded copies go, however much room the private registry has. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

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
    has started from it. And of an owner that has more than it may, what was not used for the longest time. Nothing goes
    that is needed, or that was made or used lately: a sandbox may yet be started from it for its verdict.

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
    for own in _by_owner(recorded).values() if limit_bytes else ():
        left = [entries[name] for name in own if name not in goes]
        plan = plan_removal(left, Budget.of(limit_bytes), now_ms)
        goes |= dict.fromkeys(one.digest for one in plan.removals)
    return [*goes]


def _by_owner(recorded: Mapping[str, RegistryImage]) -> Mapping[str, Iterable[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, one in recorded.items():
        for owner in one.owners:
            found[owner].append(name)
    return found
