"""What all models for input from outside are made of."""

from typing import Final

from pydantic import BaseModel, ConfigDict

MIB: Final = 1 << 20
GIB: Final = 1 << 30


class Closed(BaseModel):
    """Base of models for input from outside: refuses unknown fields and wrong types, converts nothing silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
