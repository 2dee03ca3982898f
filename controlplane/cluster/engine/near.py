"""What else the engine has where an image's name names none: the name with another tag, or similar ones. Pure."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from controlplane.images import Reference, parse

MOST: Final = 3
_ALIKE: Final = 0.7
# Of names that engines give to what has none of a registry.
_LOCAL: Final = "localhost/"


def hint(name: str, present: Sequence[str]) -> str:
    """A sentence about the images that ``name`` may have meant; empty: there are none.

    Args:
        name: as the user has written it; well formed.
        present: the names of the engine's images, with their tags.
    """
    wanted = _spoken(name)
    spoken = {_spoken(one): one for one in present}
    repository = wanted.rpartition(":")[0]
    tagged = sorted(full for short, full in spoken.items() if short.rpartition(":")[0] == repository)
    if tagged:
        tag = "that name has the tag `latest`, and" if wanted.endswith(":latest") else "of that name"
        return f"{tag} this machine has {_listed(tagged)}"
    alike = [spoken[one] for one in get_close_matches(wanted, spoken, MOST, _ALIKE)]
    return f"similar names on this machine: {_listed(alike)}" if alike else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _spoken(name: str) -> str:
    """As people write it, with its tag: without Docker Hub and without the engine's own host name."""
    try:
        reference: Reference = parse(name.removeprefix(_LOCAL))
    except ValueError:
        return name
    whole = str(Reference(reference.registry, reference.repository, reference.tag or "latest"))
    return whole.removeprefix("docker.io/").removeprefix("library/")
