"""The routes of ``/v1/keys``: API keys of an owner, which operators make, list and end for every owner."""

from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from controlplane.access import ID, Scope
from controlplane.api import said
from controlplane.api.context import App, FromCaller
from controlplane.lifecycle.keys import MadeKey
from controlplane.lifecycle.keys.declared import KEY_NAME, State, StoredKey
from controlplane.model.base import Closed

# Ten years.
MOST_LIFE_MS = 10 * 366 * 24 * 3_600_000
MOST_GRACE_MS = 7 * 24 * 3_600_000
# An owner's name is a part of no path and no selector; a colon separates it from a key in the settings.
OWNER = r"^[^:,/\x00-\x1f\x7f]{1,128}$"

Id = Annotated[str, Path(pattern=ID)]

router = APIRouter(tags=["keys"])


class KeyRequest(Closed):
    """A key that is to be made."""

    name: str = Field(pattern=KEY_NAME, description="for people; no two valid keys of an owner have the same")
    scopes: list[Scope] = Field(min_length=1, max_length=7)
    expires_in_ms: int | None = Field(default=None, ge=1000, le=MOST_LIFE_MS, description="null: it never expires")
    owner: str | None = Field(default=None, pattern=OWNER, description="of others for operators; null: yours")


class RotateRequest(Closed):
    """How a key gets another text."""

    grace_ms: int = Field(default=3_600_000, ge=0, le=MOST_GRACE_MS, description="so long the text before holds too")


class KeyBody(BaseModel):
    """A key without its text.

    Attributes:
        made_by: the id of the key that made it; ``settings``: one of the settings.
        used_at_ms: its last use, to the hour; null: none is known.
    """

    id: str
    name: str
    owner: str
    scopes: list[Scope]
    state: State
    made_at_ms: int
    made_by: str
    expires_at_ms: int | None
    rotated_at_ms: int | None
    revoked_at_ms: int | None
    used_at_ms: int | None

    @classmethod
    def of(cls, key: StoredKey, now_ms: int) -> Self:
        """From the lifecycle's view of a key."""
        return cls(**_fields(key, now_ms))


class MadeKeyBody(KeyBody):
    """A key with its text, which no later answer has; ``key`` goes into ``Authorization: Bearer``."""

    key: str

    @classmethod
    def made(cls, made: MadeKey, now_ms: int) -> Self:
        """From the lifecycle's view of a new key."""
        return cls(**_fields(made.key, now_ms), key=made.text)


class KeyList(BaseModel):
    """An owner's keys, oldest first; those that are in force no more are kept for 30 days."""

    keys: list[KeyBody]


@router.get("/keys", summary="An owner's API keys, without their texts")
async def find(
    context: App, caller: FromCaller, owner: Annotated[str | None, Query(description="for operators")] = None
) -> KeyList:
    """With what each allows, and when it was used last."""
    now_ms = context.deps.clock.now_ms()
    found = await context.service.key_calls.list(caller, owner)
    return KeyList(keys=[KeyBody.of(one, now_ms) for one in found])


@router.post("/keys", status_code=201, summary="Make an API key; its text is told once")
async def create(wish: KeyRequest, context: App, caller: FromCaller) -> MadeKeyBody:
    """It allows nothing that the caller's key does not, and for no longer."""
    made = await context.service.key_calls.create(caller, wish.name, wish.scopes, wish.expires_in_ms, wish.owner)
    said.concerns(made.key.id)
    return MadeKeyBody.made(made, context.deps.clock.now_ms())


@router.post("/keys/{key_id}/rotate", summary="Give an API key another text; the one before holds for a while")
async def rotate(key_id: Id, wish: RotateRequest, context: App, caller: FromCaller) -> MadeKeyBody:
    """Id, name, owner and scopes stay; a key that expires lives as long again."""
    made = await context.service.key_calls.rotate(caller, key_id, wish.grace_ms)
    return MadeKeyBody.made(made, context.deps.clock.now_ms())


@router.delete("/keys/{key_id}", summary="Revoke an API key; refused everywhere half a second after the answer")
async def revoke(key_id: Id, context: App, caller: FromCaller) -> KeyBody:
    """Repeating it is success. Tokens of sandboxes that it was given hold until these end."""
    return KeyBody.of(await context.service.key_calls.revoke(caller, key_id), context.deps.clock.now_ms())


def _fields(key: StoredKey, now_ms: int) -> dict[str, object]:
    declared = key.declared
    return {
        "id": key.id,
        "name": declared.name,
        "owner": declared.owner,
        "scopes": declared.scopes,
        "state": declared.state(now_ms),
        "made_at_ms": declared.made_at_ms,
        "made_by": declared.made_by,
        "expires_at_ms": declared.expires_at_ms,
        "rotated_at_ms": declared.rotated_at_ms,
        "revoked_at_ms": declared.revoked_at_ms,
        "used_at_ms": key.used_at_ms,
    }
