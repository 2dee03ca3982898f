"""The tags by which the mirror keeps converted copies, and what they say of recorded ones (``internal/mirror``). Pure.

``copy-SOURCE-estargz-ARCHITECTURES`` is the copy of all owners, with ``-OWNER-LIST`` behind it a recorded one, and
``boot-SOURCE-estargz-ARCHITECTURES-OWNER`` names the one that the starts of an owner are given.
"""

from typing import Final

# Of what stands for an owner and for a list in the first one, and for an owner in the second one. No architecture has
# so many characters.
OWNER_DIGITS: Final = 16
LIST_DIGITS: Final = 12
VERDICT_DIGITS: Final = 24


def is_copy(tag: str) -> bool:
    """Whether it is that of a copy, recorded or not."""
    return tag.startswith("copy-")


def recorded_owner(tag: str) -> str | None:
    """What stands for the owner of the recorded copy that has this tag; None: it is no such tag."""
    first, *parts = tag.split("-")
    if first != "copy" or len(parts) < 2:
        return None
    return parts[-2] if (len(parts[-2]), len(parts[-1])) == (OWNER_DIGITS, LIST_DIGITS) else None


def offers(tag: str) -> bool:
    """Whether it says what the starts of one owner are given."""
    first, *parts = tag.split("-")
    return first == "boot" and bool(parts) and len(parts[-1]) == VERDICT_DIGITS
