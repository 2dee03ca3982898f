"""Which templates pools keep warm: every create asks here before the store, since most have none."""

from dataclasses import dataclass

from controlplane.model import SandboxSpec
from controlplane.model.spec import Template
from controlplane.telemetry import Served


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing warm serves a create.

    Attributes:
        served: the same as one of few words.
        pool: whose warm ones come nearest; empty: no pool has its image.
        why: in a sentence; empty where there is no pool.
    """

    served: Served
    pool: str = ""
    why: str = ""


class Templates:
    """Templates by the name of who keeps them warm; two names may have the same one."""

    def __init__(self) -> None:
        self._specs: dict[str, SandboxSpec] = {}
        self._hashes: dict[str, str] = {}
        self._images: set[str] = set()

    def set(self, name: str, spec: SandboxSpec) -> None:
        """Says what ``name`` keeps warm; what is bound late in ``spec`` does not matter."""
        self._specs[name] = spec.template()
        self._hashes[name] = spec.template_hash()
        self._images = {one.image for one in self._specs.values()}

    def drop(self, name: str) -> None:
        """Takes it back; an unknown name is fine."""
        self._specs.pop(name, None)
        self._hashes.pop(name, None)
        self._images = {one.image for one in self._specs.values()}

    def serves(self, spec: SandboxSpec) -> bool:
        """Whether a warm sandbox may be there for this spec. Cost: a look, and a digest where the image is known."""
        return spec.image in self._images and spec.template_hash() in self._hashes.values()

    def miss(self, spec: SandboxSpec) -> Miss:
        """Why nothing warm serves this spec."""
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
    """Of a template that was replaced the name says more than whose it is."""
    return name.partition(" ")[0]


def _differs(one: Template, other: Template) -> list[str]:
    return [name for name in Template.model_fields if getattr(one, name) != getattr(other, name)]
