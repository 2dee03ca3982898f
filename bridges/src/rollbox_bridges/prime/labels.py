"""What the bridge remembers of a sandbox, as labels of rollbox, which outlive the bridge. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from rollbox_bridges.prime.words import Refusal

NAME: Final = "prime/name"
TEAM: Final = "prime/team"
VM: Final = "prime/vm"
IMAGE: Final = "prime/image"
"""What a client has called the image, where the operator has another one for it."""
REGION: Final = "prime/region"
GPU_TYPE: Final = "prime/gpu-type"
KEY: Final = "prime/key"
"""A digest of the idempotency key, by which a sandbox is found that is not ready yet."""
_LABEL: Final = "prime/label."
_VALUE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_MOST: Final = 50


def text(name: str, value: object) -> str:
    """Check that something can be the value of a label.

    Raises:
        Refusal: it cannot.
    """
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise Refusal(400, f"{name} {value!r} is not text of 1 to 256 characters without control characters")
    return value


def of_labels(given: Iterable[str]) -> dict[str, str]:
    """Prime's labels, which are texts, as labels with names.

    Raises:
        Refusal: there are too many, or one cannot be a label.
    """
    found = {_LABEL + _digest(text("label", one)): one for one in given}
    if len(found) > _MOST:
        raise Refusal(400, f"{len(found)} labels are more than {_MOST}")
    return found


def labels_of(found: Mapping[str, str]) -> list[str]:
    """Prime's labels of a sandbox, in order."""
    return sorted(value for key, value in found.items() if key.startswith(_LABEL))


def of_key(idempotency_key: str) -> dict[str, str]:
    """The label of a create's idempotency key."""
    return {KEY: _digest(idempotency_key)}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:32]
