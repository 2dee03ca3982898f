"""``PoolSpec``: how many sandboxes of one template are kept warm. Refuses unknown fields and contradictions."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from controlplane.model.base import Closed
from controlplane.model.spec import SandboxSpec, Template

MAX_WARM: Final = 10_000
# Owners with a colon in their names are parts of the platform.
_Owner = Annotated[str, StringConstraints(max_length=128, pattern=r"^[^:\x00]*$")]
Interpreter = Literal["", "python"]
POOL_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class PoolSpec(Closed):
    """What one pool is to be.

    Attributes:
        template: of its sandboxes.
        min_warm: so many are kept, whether they are claimed or not; fewer where creates would find no room.
        max_warm: never more than these; between the two, the claims decide.
        starts_per_minute: in any minute, replacements for those that fail included.
        surge: how many more there may be for a moment while a new template takes the place of an old one.
        auto: whether the claims decide; without, both sizes must be the same.
        drain: keep none, start none; what was claimed goes on.
        recording_of: the owner whose recorded copy of the image its sandboxes are started from, where there is one that
            is offered (``rollbox image convert --record``); empty: the copy of all owners.
        interpreter: what each of its sandboxes keeps running for the first caller that asks for an interpreter with the
            SDK's defaults; empty: nothing.
    """

    template: Template
    min_warm: int = Field(default=0, ge=0, le=MAX_WARM)
    max_warm: int = Field(ge=0, le=MAX_WARM)
    starts_per_minute: int = Field(default=600, ge=1, le=60_000)
    # At least 1: without surge, a change of template would have to end a warm sandbox before its replacement is ready.
    surge: int = Field(default=10, ge=1, le=1_000)
    auto: bool = True
    drain: bool = False
    # Left out where there is none.
    recording_of: _Owner = Field(default="", exclude_if=lambda owner: not owner)
    interpreter: Interpreter = Field(default="", exclude_if=lambda kept: not kept)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if shared := next((path for path, mount in self.template.mounts.items() if mount.scratch), ""):
            raise ValueError(f"template.mounts: {shared}: a scratch is an owner's, and warm sandboxes have none yet")
        if self.min_warm > self.max_warm:
            raise ValueError(f"min_warm {self.min_warm} must not be greater than max_warm {self.max_warm}")
        if not self.auto and self.min_warm != self.max_warm:
            raise ValueError(
                f"auto is off, so nothing decides between min_warm {self.min_warm} and max_warm {self.max_warm}: "
                "give both the same number"
            )
        return self

    def spec(self) -> SandboxSpec:
        """The spec that its sandboxes start with: the template, and defaults for all that a claim sets later."""
        return SandboxSpec.model_validate(self.template.model_dump())


class PoolChange(Closed):
    """What of a pool is to be another way; what is None stays."""

    min_warm: int | None = None
    max_warm: int | None = None
    starts_per_minute: int | None = None
    surge: int | None = None
    auto: bool | None = None
    drain: bool | None = None
    recording_of: _Owner | None = None
    interpreter: Interpreter | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"nothing is to be changed: give one of {', '.join(PoolChange.model_fields)}")
        return self
