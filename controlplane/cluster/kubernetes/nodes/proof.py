"""Whether nodes are proven for sandboxes: the taint of those that are not, and what their agents told. Pure.

The operator writes both, where the chart's installer is enabled; ``rollbox doctor --cluster`` reads them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

TAINT: Final = "rollbox.dev/unproven"
ANNOTATION: Final = "rollbox.dev/node"

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """What the agent of a node told last.

    Attributes:
        troubles: why sandboxes do not start there; none: it is proven.
        lazy_trouble: why it mounts no image lazily now; it is proven all the same, since others start.
        installer: how the installer's last run has ended: installed, refused, failed.
        detail: why.
        programs: versions of what was installed, by name.
        low: settings of its kernel that are lower than so many sandboxes need; it is proven all the same.
    """

    troubles: Sequence[str] = field(default_factory=list)
    installer: str = ""
    detail: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    lazy_trouble: str = ""
    low: Sequence[str] = field(default_factory=list)

    @property
    def proven(self) -> bool:
        """Whether sandboxes start there."""
        return not self.troubles

    @classmethod
    def of(cls, node: Node) -> Self | None:
        """What is on record of a node; None: nothing, or something that this version cannot read."""
        text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None

    def text(self) -> str:
        """As an annotation; the same for the same proof."""
        return json.dumps(asdict(self), sort_keys=True)


def tainted(node: Node) -> bool:
    """Whether a node has the taint."""
    return any(one.get("key") == TAINT for one in (node.get("spec") or {}).get("taints") or ())


def marked(node: Node, proof: Proof) -> Mapping[str, Any] | None:
    """The merge patch that gives a node what it has to have after a proof; None: it has it."""
    if tainted(node) is not proof.proven and Proof.of(node) == proof:
        return None
    return _patch(node, taint=not proof.proven, annotation=proof.text())


def unmarked(node: Node) -> Mapping[str, Any] | None:
    """The merge patch that takes everything away from a node; None: there is nothing."""
    if not tainted(node) and ANNOTATION not in (node["metadata"].get("annotations") or {}):
        return None
    return _patch(node, taint=False, annotation=None)


def _patch(node: Node, *, taint: bool, annotation: str | None) -> Mapping[str, Any]:
    taints = [one for one in (node.get("spec") or {}).get("taints") or () if one.get("key") != TAINT]
    if taint:
        taints.append({"key": TAINT, "effect": "NoSchedule"})
    # The list is replaced as a whole: with the version, nobody's taint of this moment is lost.
    version = node["metadata"].get("resourceVersion")
    metadata = {"resourceVersion": version, "annotations": {ANNOTATION: annotation}}
    return {"metadata": metadata, "spec": {"taints": taints or None}}
