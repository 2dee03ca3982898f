"""Which templates pools keep warm: every create asks here before the store, since most have none."""

from controlplane.model import SandboxSpec
from controlplane.model.spec import Template


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

    def why_cold(self, spec: SandboxSpec) -> str:
        """One sentence on why nothing warm serves this spec; empty where no pool has its image."""
        same = {name: one for name, one in self._specs.items() if one.image == spec.image}
        if not same:
            return ""
        serving = [name for name, one in same.items() if self._hashes[name] == spec.template_hash()]
        if serving:
            return f"pool {', '.join(sorted(serving))} had none ready"
        name, nearest = min(same.items(), key=lambda one: (len(_differs(one[1], spec)), one[0]))
        return f"pool {name} keeps {spec.image} with other {', '.join(_differs(nearest, spec))}"


def _differs(one: Template, other: Template) -> list[str]:
    return [name for name in Template.model_fields if getattr(one, name) != getattr(other, name)]
