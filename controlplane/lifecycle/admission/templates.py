"""Which templates pools keep warm; every create checks here first, so that most need no claim in the store."""

from dataclasses import dataclass

from controlplane.model import SandboxSpec, pool_owner
from controlplane.model.spec import Template
from controlplane.telemetry import Served


@dataclass(frozen=True, slots=True)
class Miss:
    """Why no warm sandbox serves a create.

    Attributes:
        served: the reason as a metric label.
        pool: the pool whose template is nearest; empty: no pool has its image.
        why: the reason as a sentence; empty if there is no such pool.
    """

    served: Served
    pool: str = ""
    why: str = ""


class Templates:
    """Templates by the name of the pool that keeps them warm; two pools may have the same template."""

    def __init__(self) -> None:
        self._specs: dict[str, SandboxSpec] = {}
        self._hashes: dict[str, str] = {}
        self._recordings: dict[str, str] = {}
        self._images: set[str] = set()

    def set(self, name: str, spec: SandboxSpec, recording_of: str = "") -> None:
        """Sets the template that ``name`` keeps warm; the settings in ``spec`` that a claim binds are ignored.

        Args:
            name: of the pool.
            spec: of its sandboxes.
            recording_of: the owner whose recorded copy of the image these are started from; empty: none.
        """
        self._recordings[pool_owner(name)] = recording_of
        self._specs[name] = spec.template()
        self._hashes[name] = spec.template_hash()
        self._images = {one.image for one in self._specs.values()}

    def drop(self, name: str) -> None:
        """Removes the template of ``name``; an unknown name is ignored."""
        self._specs.pop(name, None)
        self._hashes.pop(name, None)
        self._recordings.pop(pool_owner(name), None)
        self._images = {one.image for one in self._specs.values()}

    def recorder(self, owner: str) -> str:
        """Whose recorded copy an owner's starts get: its own; of a pool, the declared owner's; empty: nobody's."""
        return self._recordings.get(owner, "") if ":" in owner else owner

    def serves(self, spec: SandboxSpec) -> bool:
        """Whether there may be a warm sandbox for this spec. Cost: a set lookup, and a hash if a pool has the image."""
        return spec.image in self._images and spec.template_hash() in self._hashes.values()

    def miss(self, spec: SandboxSpec) -> Miss:
        """Why no warm sandbox serves this spec."""
        same = {name: one for name, one in self._specs.items() if one.image == spec.image}
        if not same:
            return Miss("no_pool")
        serving = [name for name, one in same.items() if self._hashes[name] == spec.template_hash()]
        if serving:
            return Miss("none_ready", _pool(min(serving)), f"pool {', '.join(sorted(serving))} had none ready")
        name, nearest = min(same.items(), key=lambda one: (len(_differs(one[1], spec)), one[0]))
        why = f"pool {name} keeps {spec.image} with other {', '.join(_differs(nearest, spec))}"
        return Miss("other_template", _pool(name), why)


def _pool(name: str) -> str:
    """The pool in a template's name; the name of a replaced template also has its hash, after a space."""
    return name.partition(" ")[0]


def _differs(one: Template, other: Template) -> list[str]:
    return [name for name in Template.model_fields if getattr(one, name) != getattr(other, name)]
