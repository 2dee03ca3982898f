"""``EgressPolicy``: what a sandbox may reach, as owners and operators write it. Unknown fields are refused."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from controlplane.egress import names

# Of one policy, with all that it includes; egress looks each one up for every connection.
MOST_RULES: Final = 2_000
MOST_PORTS: Final = 64
MOST_INCLUDED: Final = 16
# The relay in the sandbox holds no more.
MOST_CONNECTIONS: Final = 256
# Of a preset: also the name of its object in the cluster.
NAME: Final = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"

Mode = Literal["none", "allow", "deny", "open"]
PresetName = Annotated[str, StringConstraints(pattern=NAME)]


class _Closed(BaseModel):
    """Refuses unknown fields and wrong types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class EgressRule(_Closed):
    """One host or one network, with ports.

    Attributes:
        host: ``example.org`` (that name alone), ``*.example.org`` (names below it, at any depth), ``*`` (any name).
        cidr: a network or an address.
        ports: numbers or ranges like ``8000-8099``; empty: 80 and 443 of what is allowed, all of what is denied.
        name: by which a refusal and the log name the rule; empty: its number.
    """

    host: Annotated[str, AfterValidator(names.host)] | None = None
    cidr: Annotated[str, AfterValidator(names.cidr)] | None = None
    ports: list[int | str] = Field(default_factory=list, max_length=MOST_PORTS)
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/ -]{0,64}$")] = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.host is None) == (self.cidr is None):
            raise ValueError("a rule has a host or a cidr, and not both")
        names.ports(self.ports)
        return self

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for rules that say the same."""
        return self.host, self.cidr, names.ports(self.ports)


def _written_short(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    if not isinstance(value, str):
        return value
    try:
        names.cidr(value)
    except ValueError:
        return {"host": value}
    return {"cidr": value}


# A text alone is a host or a network.
Rule = Annotated[EgressRule, BeforeValidator(_written_short, json_schema_input_type=str | EgressRule)]


_FORM: Final = "2024-06-01T00:00:00Z"


def _moment(text: str) -> str:
    if not text:
        return text
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"until {text[:40]!r} must be a date like 2024-06-01, or with a time like {_FORM}") from error
    if not 1970 <= moment.year <= 9999:
        raise ValueError(f"until {text[:40]!r} must be a year from 1970 on")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class EgressLimits(_Closed):
    """What a sandbox may use of the network; what is left out has the installation's default.

    Attributes:
        connections: open at once.
        connections_per_second: new ones, after as many at once.
        bytes_per_second: both directions together.
        total_bytes: both directions together, since the sandbox has its egress replica.
    """

    connections: int | None = Field(default=None, ge=1, le=MOST_CONNECTIONS)
    connections_per_second: int | None = Field(default=None, ge=1, le=10_000)
    bytes_per_second: int | None = Field(default=None, ge=1_024, le=1 << 40)
    total_bytes: int | None = Field(default=None, ge=1, le=1 << 50)


class EgressPolicy(_Closed):
    """What a sandbox may reach.

    Attributes:
        mode: ``none``: nothing; ``allow``: what ``allow`` names and ``deny`` does not; ``deny``: what ``deny`` does not
            name; ``open``: everything. Private addresses and those of the platform are reached in no mode.
        include: presets of the same mode, whose rules are added.
        allow, deny: a denied host or network stays so, whatever is allowed.
        until: of mode ``allow``: package indexes are reached through the package cache alone, and what was published
            from this moment on is not there. A date is its first second in UTC; empty: they are seen as they are.
    """

    mode: Mode
    include: list[PresetName] = Field(default_factory=list, max_length=MOST_INCLUDED)
    allow: list[Rule] = Field(default_factory=list)
    deny: list[Rule] = Field(default_factory=list)
    limits: EgressLimits = Field(default_factory=EgressLimits)
    until: Annotated[str, AfterValidator(_moment)] = ""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        check_count(len(self.allow) + len(self.deny))
        if trouble := _trouble(self):
            raise ValueError(trouble)
        _check_contradictions(self.allow, self.deny)
        for rule in self.allow:
            if rule.cidr is not None and names.never_reached(rule.cidr):
                raise ValueError(f"{rule.cidr} is never reached, whatever a policy says: take the rule out")
        return self


def check_count(rules: int) -> None:
    """Refuses more rules than egress is asked to look up.

    Raises:
        ValueError: there are too many.
    """
    if rules > MOST_RULES:
        raise ValueError(f"{rules} rules are more than {MOST_RULES}")


def _trouble(policy: EgressPolicy) -> str:
    given = {name for name in ("include", "allow", "deny") if getattr(policy, name)}
    if policy.until and policy.mode != "allow":
        return f"mode {policy.mode} has no `until`: copies of packages are everywhere, so use mode allow"
    match policy.mode:
        case "none" | "open" if given:
            hint = "use mode allow" if policy.mode == "none" else "use mode deny"
            return f"mode {policy.mode} has no rules, and {', '.join(sorted(given))} is given: {hint}"
        case "allow" if not given & {"allow", "include"}:
            return "mode allow without a rule in `allow` or `include` reaches nothing: use mode none"
        case "deny" if "allow" in given:
            return "mode deny allows everything that `deny` does not name: take `allow` out, or use mode allow"
        case "deny" if not given:
            return "mode deny without a rule in `deny` or `include` denies nothing: use mode open"
    return ""


def _check_contradictions(allow: Sequence[EgressRule], deny: Sequence[EgressRule]) -> None:
    denied = {rule.key for rule in deny}
    for rule in allow:
        if rule.key in denied:
            raise ValueError(f"{rule.host or rule.cidr} is allowed and denied with the same ports: take one out")


def _kind(value: Any) -> str:  # noqa: ANN401 - whatever JSON has
    return "preset" if isinstance(value, str) else "policy"


# As callers give it: the name of a preset, or a policy.
PolicyOrPreset = Annotated[
    Annotated[PresetName, Tag("preset")] | Annotated[EgressPolicy, Tag("policy")], Discriminator(_kind)
]
