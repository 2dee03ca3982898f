"""Which form of an image a start gets: the plain copy, or the converted one, which nodes mount lazily. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

from controlplane.errors import Problem
from controlplane.images import Form
from controlplane.model.spec import Pull
from controlplane.telemetry import FullReason

_CONVERTING: Final = "its converted copy was not there yet, and is made for later starts"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an image's converted copy.

    Attributes:
        state: ``offered``: a sandbox has started from it; ``absent``: it is not there, or was not tried; ``failed``: it
            cannot be made, or none starts from it; ``unknown``: nobody says.
        digest: of one that is offered, or that was before it failed.
        why: of one that failed, or that nobody says anything of.
        refused: it failed for good, for what is in the image; else it may be tried again.
        recorded_by: the owner whose recorded copy it is; empty: it is all owners'.
    """

    state: Literal["offered", "absent", "failed", "unknown"]
    digest: str = ""
    why: str = ""
    refused: bool = False
    recorded_by: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a start does.

    Attributes:
        form: what it gets; of ``estargz`` without a digest it waits until there is one.
        digest: of the converted copy.
        convert: whether the image is to be converted for later starts.
        reason: why it is plain; empty: it is not.
        why: the same for people, or what is special about the copy; empty where nobody expected anything else.
    """

    form: Form
    digest: str = ""
    convert: bool = False
    reason: FullReason = ""
    why: str = ""


def choose(pull: Pull, known: Known, *, able: bool) -> Choice:
    """The form of one start.

    Args:
        pull: what its create asks for.
        known: what is known of the converted copy.
        able: whether all nodes that it may come to mount converted copies.

    Raises:
        Problem: unsupported: lazy is asked for, and cannot be had; image_pull_failed: nobody says whether it can.
    """
    if pull == "full":
        return Choice("plain", reason="asked")
    if not able:
        if pull == "lazy":
            raise Problem("unsupported", "pull lazy: its nodes do not mount converted images", option="pull")
        return Choice("plain", reason="nodes")
    if known.state == "offered":
        why = f"from the recorded copy of {known.recorded_by}" if known.recorded_by else ""
        return Choice("estargz", known.digest, why=why)
    return _awaited(known) if pull == "lazy" else _at_once(known)


def _at_once(known: Known) -> Choice:
    if known.state == "absent":
        return Choice("plain", convert=True, reason="converting", why=_CONVERTING)
    if known.state == "failed":
        return Choice("plain", reason="failed", why=f"it has no converted copy that works: {known.why}")
    return Choice("plain", reason="unknown", why=f"nobody says whether it was converted: {known.why}")


def _awaited(known: Known) -> Choice:
    if known.refused:
        detail = f"pull lazy: the image is not to be had in a form that is mounted lazily: {known.why}"
        raise Problem("unsupported", f"{detail}; pull it auto or full", option="pull")
    # What has failed for the platform, or is away, may be whole again before the start has to be over.
    return Choice("estargz")
