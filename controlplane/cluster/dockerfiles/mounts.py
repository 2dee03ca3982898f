"""Mounts of a RUN, as the engine's builder is given them. Pure."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from controlplane.cluster.dockerfiles.dockerfile import Instruction

_TARGETS: Final = {"target": "target", "dst": "target", "destination": "target"}
_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "bind": frozenset({"target", "source", "readwrite", "readonly", "from"}),
    "cache": frozenset({"target", "id", "sharing", "readonly", "mode", "uid", "gid"}),
    "secret": frozenset({"target", "id", "required", "mode", "uid", "gid"}),
    "tmpfs": frozenset({"target", "size"}),
}
_SAME: Final = {**_TARGETS, "src": "source", "rw": "readwrite", "ro": "readonly"}
_VALUE: Final = re.compile(r"[A-Za-z0-9_./:@+ -]*")


def mount(one: Instruction, options: str, owner: str) -> dict[str, str]:
    """The options of a mount by name, or its refusal.

    A cache is its owner's: the builder has a folder of the machine for each id, whoever names it.

    Args:
        one: the RUN.
        options: as it says them.
        owner: whose build it is.

    Raises:
        Problem: invalid_argument, unsupported.
    """
    told = _read(one, options)
    kind = told.pop("type", "bind")
    if kind not in _ALLOWED:
        raise one.unsupported(f"a mount of type {kind[:40]!r}", f"a RUN here has {', '.join(sorted(_ALLOWED))}")
    if "from" in told and (kind != "bind" or told.get("readwrite", "false") != "false"):
        instead = "mount it read only, by type=bind, or COPY --from what the RUN needs"
        raise one.unsupported("a mount from a stage or an image that a RUN may change", instead)
    if odd := sorted(told.keys() - _ALLOWED[kind]):
        raise one.unsupported(f"the option {odd[0]!r} of a {kind} mount", f"it has {', '.join(sorted(_ALLOWED[kind]))}")
    if kind == "cache":
        whose = f"{owner}\0{told.get('id') or told.get('target', '')}"
        told["id"] = hashlib.sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if ".." in told.get("source", "").split("/"):
        raise one.invalid("the source of a mount leads out of the context")
    if "readwrite" in told and "from" in told:
        del told["readwrite"]
    return {"type": kind, **told}


def joined(told: Mapping[str, str]) -> str:
    """Options as an instruction has them."""
    return ",".join(f"{name}={value}" for name, value in told.items())


def _read(one: Instruction, options: str) -> dict[str, str]:
    told: dict[str, str] = {}
    for option in options.split(","):
        name, equals, value = option.partition("=")
        name = _SAME.get(name.lower(), name.lower())
        if name in told or not re.fullmatch(r"[a-z]+", name) or not _VALUE.fullmatch(value):
            raise one.invalid(f"the mount option {option[:100]!r} is written in a way that is not read here")
        told[name] = value if equals else "true"
    return told
