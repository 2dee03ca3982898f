"""Reads a pool's declaration from its document; an invalid one is kept too, with what is wrong with it."""

from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from controlplane.cluster.documents import Document
from controlplane.model import Overcommit
from controlplane.model.pool import PoolSpec

MAX_TROUBLE_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Declared:
    """A pool's declaration.

    Attributes:
        version: of the document.
        spec: None when the declaration is invalid.
        trouble: what is wrong with it, in a sentence; empty when it is valid.
    """

    name: str
    version: str
    spec: PoolSpec | None
    trouble: str = ""


def declared(document: Document) -> Declared:
    """Reads a document of kind ``pools``."""
    trouble = document.trouble
    try:
        if not trouble:
            return Declared(document.name, document.version, PoolSpec.model_validate(document.body))
    except ValidationError as error:
        trouble = fault(error)
    return Declared(document.name, document.version, None, trouble[:MAX_TROUBLE_CHARS])


def filled(one: Declared, overcommit: Overcommit) -> Declared:
    """The declaration with what is set aside for its sandboxes, where it gives limits alone."""
    if one.spec is None:
        return one
    spec = overcommit.filled(one.spec.spec())
    amounts = {"cpu_millicores": spec.cpu_millicores, "memory_bytes": spec.memory_bytes}
    template = one.spec.template.model_copy(update=amounts)
    return replace(one, spec=one.spec.model_copy(update={"template": template}))


def fault(error: ValidationError) -> str:
    """The first validation error, in a sentence."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where or 'the pool'}: {first['msg'].removeprefix('Value error, ')}"
