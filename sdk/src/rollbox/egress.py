"""Network policies of sandboxes: what a program writes, and what it is told. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from rollbox import request
from rollbox.errors import InvalidArgument

EgressMode: TypeAlias = Literal["none", "allow", "deny", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRule:
    """One host or one network, with ports. A text alone stands for a rule without ports and name.

    Attributes:
        host: "example.org" (that name alone), "*.example.org" (names below it, at any depth), "*" (any name).
        cidr: a network or an address.
        ports: numbers, or ranges like "8000-8099"; empty: 80 and 443 of what is allowed, all of what is denied.
        name: by which a refusal and the log name the rule.

    Raises:
        InvalidArgument: it has a host and a cidr, or neither.
    """

    host: str | None = None
    cidr: str | None = None
    ports: Sequence[int | str] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if (self.host is None) == (self.cidr is None):
            raise InvalidArgument("an EgressRule has a host or a cidr, and not both")

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | str) -> EgressRule | str:
        """Read the wire form; a text stays one."""
        return body if isinstance(body, str) else cls(**_known(cls, body))

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        where = {"host": self.host} if self.host is not None else {"cidr": self.cidr}
        ports: dict[str, Any] = {"ports": list(self.ports)} if self.ports else {}
        return {**where, **ports, **({"name": self.name} if self.name else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """What a sandbox may reach. The server says what of it is not sound.

    Attributes:
        mode: "none": nothing; "allow": what `allow` names and `deny` does not; "deny": what `deny` does not name;
            "open": everything. Private addresses and those of the platform are reached in no mode.
        include: presets of the same mode, whose rules are added.
        allow, deny: hosts, networks or `EgressRule`s; what is denied stays so, whatever is allowed.
        connections: open at once, at most 256; None, as below: the installation's default.
        connections_per_second: new ones, after as many at once.
        bytes_per_second: both directions together.
        total_bytes: both directions together, as long as the sandbox has the same egress replica.
        until: of mode "allow", where a package cache is installed: package indexes are reached through it alone, and
            what was published from this moment on is not there ("2024-06-01" is its first second in UTC, as is
            "2024-06-01T00:00:00Z"); empty: they are seen as they are.

    Raises:
        InvalidArgument: the mode is none of these.
    """

    mode: EgressMode
    include: Sequence[str] = ()
    allow: Sequence[str | EgressRule] = ()
    deny: Sequence[str | EgressRule] = ()
    connections: int | None = None
    connections_per_second: int | None = None
    bytes_per_second: int | None = None
    total_bytes: int | None = None
    until: str = ""

    def __post_init__(self) -> None:
        if self.mode not in get_args(EgressMode):
            raise InvalidArgument(f"egress mode {self.mode!r} is none of {', '.join(get_args(EgressMode))}")
        self.to_json()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EgressPolicy:
        """Read the wire form.

        Raises:
            InvalidArgument: it is no policy, or has what a policy has not.
        """
        if not isinstance(body, Mapping) or not isinstance(body.get("limits") or {}, Mapping):
            raise InvalidArgument("an egress policy is a JSON object with `mode`")
        flat = {name: value for name, value in body.items() if name != "limits"}
        sides = {side: [EgressRule.from_json(one) for one in body.get(side) or ()] for side in ("allow", "deny")}
        return cls(**_known(cls, {**flat, **sides, **(body.get("limits") or {})}))

    def to_json(self) -> dict[str, Any]:
        """Write the wire form."""
        body: dict[str, Any] = {"mode": self.mode}
        if self.include:
            body["include"] = list(self.include)
        for side in ("allow", "deny"):
            if rules := getattr(self, side):
                body[side] = [
                    one.to_json() if isinstance(one, EgressRule) else request.text(side, one) for one in rules
                ]
        names = ("connections", "connections_per_second", "bytes_per_second", "total_bytes")
        limits = {name: request.count(name, given) for name in names if (given := getattr(self, name)) is not None}
        until = {"until": request.text("until", self.until)} if self.until else {}
        return {**body, **({"limits": limits} if limits else {}), **until}


Egress: TypeAlias = str | EgressPolicy
"""The name of a preset, or a policy."""


@dataclass(frozen=True, slots=True)
class EgressState:
    """The network policy of a sandbox.

    Attributes:
        policy: name of the preset that it was when it was set, or "custom".
        revision: increases with every switch; 0: there was none.
        applied: whether the last switch is in force.
        cut: how many open connections were closed for it.
        link: "up", "down" (see `link_detail`), "none" (it has been offline since its birth), or "unknown".
        rules: as they are in force, presets looked up: mode (offline, rules, open, dated), allow, deny, limits, until.
    """

    policy: str
    revision: int = 0
    applied: bool = True
    cut: int = 0
    link: str = "unknown"
    link_detail: str = ""
    rules: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EgressState:
        """Read the wire form; fields that this version does not know are left out."""
        link = body.get("link") or {}
        flat = {**body, "link": link.get("state", "unknown"), "link_detail": link.get("detail", "")}
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in flat.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """Write the fields, for `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EgressAttempt:
    """A connection that a program in a sandbox asked for, or several equal ones of one second.

    Attributes:
        at_ms: Unix time.
        host: as it was asked for.
        address: that was dialled; empty: none was.
        verdict: "allowed" (when the connection begins, and when it ends, with its bytes), "denied_name",
            "denied_address", "denied_tls", "denied_limit", "bad_request", "unresolved", "unreachable", "cut", "idle",
            "name_server_silent" and "packages_silent" (the platform's fault: its name servers, or its package cache, do
            not answer for an allowed name), and "no_link" (its fault too: the sandbox had lost its link to egress).
        policy, rule: that decided.
        protocol: http, connect, socks5, packages (a request to the package cache, whose host is the index) or dns.
        sent_bytes, received_bytes: seen from the sandbox.
        count: how many of them.
    """

    at_ms: int
    host: str
    port: int
    verdict: str
    address: str = ""
    policy: str = ""
    rule: str = ""
    protocol: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    duration_ms: int = 0
    count: int = 1

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EgressAttempt:
        """Read the wire form; fields that this version does not know are left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in body.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """Write the fields, for `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EgressPreset:
    """A network policy with a name.

    Attributes:
        source: "installation" (of its settings), "operators" (an object of the cluster for everybody), or "own".
        policy: as it was written.
    """

    name: str
    source: str
    policy: EgressPolicy

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EgressPreset:
        """Read the wire form."""
        return cls(body["name"], body["source"], EgressPolicy.from_json(_without_nulls(body["policy"])))

    def to_json(self) -> dict[str, Any]:
        """Write the fields, for `--json`."""
        return {"name": self.name, "source": self.source, "policy": self.policy.to_json()}


EgressPresets: TypeAlias = list[EgressPreset]
"""What `Client.egress_presets()` returns."""

EgressLog: TypeAlias = list[EgressAttempt]
"""What `Sandbox.egress_log()` returns."""


def wish_to_json(wish: Egress) -> str | dict[str, Any]:
    """Write the wire form of a preset's name or a policy.

    Raises:
        InvalidArgument: it is neither.
    """
    if isinstance(wish, EgressPolicy):
        return wish.to_json()
    if not isinstance(wish, str) or not wish:
        raise InvalidArgument(f"egress {wish!r} is neither the name of a preset nor an EgressPolicy")
    return wish


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _known(kind: type[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a value; anything else is refused, since it would be ignored."""
    names = {item.name for item in fields(kind)}
    if unknown := next((name for name in body if name not in names), None):
        raise InvalidArgument(f"{kind.__name__} has no {unknown!r}")
    if "mode" in names and "mode" not in body:
        raise InvalidArgument(f"{kind.__name__} needs a mode: one of {', '.join(get_args(EgressMode))}")
    return dict(body)
