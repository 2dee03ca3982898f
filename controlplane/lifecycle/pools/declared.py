"""Reads a pool's declaration from its document; an invalid one is kept too, with what is wrong with it."""

from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from controlplane.cluster.documents import Document
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


def fault(error: ValidationError) -> str:
    """The first validation error, in a sentence."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where or 'the pool'}: {first['msg'].removeprefix('Value error, ')}"
