"""Warm pools: sandboxes that are kept ready for creates. Pure: arguments to request bodies, JSON to dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypedDict

from rollbox.errors import InvalidArgument
from rollbox.options import ResourceOptions, Resources, template_body
from rollbox.request import count

Warm: TypeAlias = int | tuple[int, int]
"""How many are kept ready: a number, or (minimum, maximum), between which the size follows the claims."""


class PoolOptions(ResourceOptions, total=False):
    """The options of `Client.set_pool` besides image and size; those of the template as in `Sandbox.create`."""

    starts_per_minute: int | None
    surge: int | None
    recording_of: str | None
    interpreter: Literal["python"] | None


class PoolChanges(TypedDict, total=False):
    """The options of `Client.change_pool`; omitted ones stay as they are."""

    warm: Warm
    starts_per_minute: int
    surge: int
    drain: bool
    recording_of: str
    interpreter: Literal["python", ""]


@dataclass(frozen=True, slots=True)
class PoolFailure:
    """Failed starts with one code since the last successful start; `detail` is that of the last one."""

    code: str
    detail: str
    count: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool's declaration, and its status of a few seconds ago.

    Attributes:
        image: of its template; "" when the declaration is invalid.
        template: all of it, as on the wire.
        trouble: what is wrong with the declaration (which may have been written without this API); then nothing is
            started or stopped for the pool. "" when the declaration is valid.
        recording_of: the owner whose recorded copy of the image its sandboxes are started from; "": the copy of all.
        interpreter: what each of its sandboxes keeps running for the first `sandbox.interpreter()`; "": nothing.
        ready, starting: how many there are; ready ones can be claimed.
        outdated: how many have an old template or are too old; they can be claimed until others are ready.
        wanted: how many there should be now.
        claimed_per_minute: creates for this pool in the last minute, served or not.
        why: one sentence on why so many are wanted, and what prevents that.
        failures: why starts fail; empty while they succeed.
        paused_until_ms: nothing is started before this time (Unix ms); None: not paused.
    """

    name: str
    image: str = ""
    template: dict[str, Any] = field(default_factory=dict)
    min_warm: int = 0
    max_warm: int = 0
    starts_per_minute: int = 0
    surge: int = 0
    auto: bool = True
    drain: bool = False
    recording_of: str = ""
    interpreter: str = ""
    trouble: str = ""
    ready: int = 0
    starting: int = 0
    outdated: int = 0
    wanted: int = 0
    claimed_per_minute: int = 0
    why: str = ""
    failures: tuple[PoolFailure, ...] = ()
    paused_until_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Pool:
        """Read the wire form; fields that this version does not know are left out."""
        spec, status = body["spec"] or {}, body["status"]
        told = {**spec, **status, "name": body["name"], "trouble": body["trouble"]}
        known = {item.name: told[item.name] for item in fields(cls) if item.name in told}
        known["image"] = spec.get("template", {}).get("image", "")
        names = [item.name for item in fields(PoolFailure)]
        known["failures"] = tuple(PoolFailure(**{name: one[name] for name in names}) for one in status["failures"])
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


PoolList: TypeAlias = list[Pool]


def pool_body(image: str, warm: Warm, options: PoolOptions) -> dict[str, Any]:
    """Build the body that declares a pool; InvalidArgument for an invalid argument."""
    given: dict[str, Any] = {**options}
    rates = {name: given.pop(name, None) for name in ("starts_per_minute", "surge")}
    owned = {name: given.pop(name, None) for name in ("recording_of", "interpreter")}
    body = {"template": template_body(image, Resources(**given)), **warm_body(warm)}
    body |= {name: value for name, value in owned.items() if value}
    return body | {name: count(name, value) for name, value in rates.items() if value is not None}


def changes_body(changes: PoolChanges) -> dict[str, Any]:
    """Build the body that changes a pool.

    Raises:
        InvalidArgument: nothing is to be changed, or a value is invalid.
    """
    body: dict[str, Any] = {} if "warm" not in changes else warm_body(changes["warm"])
    for name, value in (("starts_per_minute", changes.get("starts_per_minute")), ("surge", changes.get("surge"))):
        if value is not None:
            body[name] = count(name, value)
    if "drain" in changes:
        body["drain"] = bool(changes["drain"])
    if "recording_of" in changes:
        body["recording_of"] = changes["recording_of"]
    if "interpreter" in changes:
        body["interpreter"] = changes["interpreter"]
    if not body:
        names = "warm, starts_per_minute, surge, recording_of, interpreter or drain"
        raise InvalidArgument(f"nothing is to be changed: name {names}")
    return body


def warm_body(warm: Warm) -> dict[str, Any]:
    """Build the fields of a request that say how many warm sandboxes a pool keeps.

    Args:
        warm: the number, or (minimum, maximum).

    Raises:
        InvalidArgument: it is neither, or the minimum is the greater one.
    """
    pair = warm if isinstance(warm, tuple) else (warm, warm)
    if len(pair) != 2 or not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in pair):
        raise InvalidArgument(f"warm {warm!r} is not a number from 0 on, or (minimum, maximum)")
    least, most = pair
    if least > most:
        raise InvalidArgument(f"warm {warm!r}: the minimum {least} is greater than the maximum {most}")
    return {"min_warm": least, "max_warm": most, "auto": True}
