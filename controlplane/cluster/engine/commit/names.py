"""Names of committed images on an engine, and which names lead to them. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from controlplane.images import parse

# Engines send no request for names with this host: they are of images that were made here. Each installation has a
# folder of its own below it, since several have owners of the same names.
COMMITS: Final = "localhost/rollbox/commits"
# Beside the name that its owner has given it, each has one that nothing else ever gets: an image that has lost all its
# names can be reached by its digest, and would have no owner. It also has the bytes of the image's own layer, which no
# engine tells.
KEPT_TAG: Final = "id-{id}-"
_KEPT: Final = re.compile(rf"{re.escape(COMMITS)}/.*:id-[0-9a-f]{{64}}-(?P<size>[0-9]+)")
# An id of which nothing has to be guessed.
_WHOLE: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# Docker's word for no name.
_NONE: Final = "<none>:<none>"


def kept_name(target: str, size_bytes: int) -> str:
    """The name that an image keeps when a later commit takes its other name.

    Args:
        target: the name that the commit was given.
        size_bytes: of the image's own layer, which the name tells.

    Returns:
        A name in which ``{id}`` is to be replaced by the digits of the image's digest.
    """
    return f"{parse(target).name}:{KEPT_TAG}{size_bytes}"


def is_kept(name: str) -> bool:
    """Whether it is such a name."""
    return _KEPT.fullmatch(name) is not None


def layer_bytes(names: Iterable[str]) -> int | None:
    """The bytes of an image's own layer, by the name that stays with it; None: it has none."""
    for name in names:
        kept = _KEPT.fullmatch(name)
        if kept is not None:
            return int(kept["size"])
    return None


def place_of(installation: str) -> str:
    """Below which an installation has the images that were made in it."""
    return f"{COMMITS}/{installation}"


def hidden(name: str, names: Iterable[str], place: str = COMMITS) -> bool:
    """Whether an image that the engine has found by ``name`` is not meant by it.

    Engines also find images by digests, by the first digits of them, and by names that they complete. What somebody has
    committed is found by its very name only, since that says whose it is.

    Args:
        name: as ``start`` is given it.
        names: all names of the image, with tags.
        place: below which this installation has its own: no name leads to those of others.
    """
    repositories = {one.rpartition(":")[0] for one in names if one != _NONE}
    if not repositories:
        # It may be a step of somebody's build.
        return _WHOLE.search(name) is None
    committed = {one for one in repositories if one.startswith(f"{COMMITS}/")}
    if not committed:
        return False
    asked = parse(name)
    if asked.name in committed:
        return not asked.name.startswith(f"{place}/")
    # Somebody with access to the engine may have given it a name of another kind.
    short = f"localhost/{asked.repository.removeprefix('library/')}"
    return not {asked.name, short} & (repositories - committed)


def shown(names: Iterable[str]) -> list[str]:
    """The names of an image that people may know it by; the one that stays only where it has no other."""
    known = [one for one in names if one != _NONE]
    return [one for one in known if not is_kept(one)] or known
