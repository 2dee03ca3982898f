from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OFFLINE: _ClassVar[Mode]
    RULES: _ClassVar[Mode]
    OPEN: _ClassVar[Mode]
    DATED: _ClassVar[Mode]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    ALLOWED: _ClassVar[Verdict]
    DENIED_NAME: _ClassVar[Verdict]
    DENIED_ADDRESS: _ClassVar[Verdict]
    DENIED_TLS: _ClassVar[Verdict]
    DENIED_LIMIT: _ClassVar[Verdict]
    BAD_REQUEST: _ClassVar[Verdict]
    UNRESOLVED: _ClassVar[Verdict]
    UNREACHABLE: _ClassVar[Verdict]
    CUT: _ClassVar[Verdict]
    NAME_SERVER_SILENT: _ClassVar[Verdict]
    IDLE: _ClassVar[Verdict]
    PACKAGES_SILENT: _ClassVar[Verdict]
OFFLINE: Mode
RULES: Mode
OPEN: Mode
DATED: Mode
VERDICT_UNSPECIFIED: Verdict
ALLOWED: Verdict
DENIED_NAME: Verdict
DENIED_ADDRESS: Verdict
DENIED_TLS: Verdict
DENIED_LIMIT: Verdict
BAD_REQUEST: Verdict
UNRESOLVED: Verdict
UNREACHABLE: Verdict
CUT: Verdict
NAME_SERVER_SILENT: Verdict
IDLE: Verdict
PACKAGES_SILENT: Verdict

class WatchRequest(_message.Message):
    __slots__ = ("egress_id",)
    EGRESS_ID_FIELD_NUMBER: _ClassVar[int]
    egress_id: str
    def __init__(self, egress_id: _Optional[str] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("version", "snapshot", "delta", "heartbeat")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    version: int
    snapshot: Snapshot
    delta: Delta
    heartbeat: Heartbeat
    def __init__(self, version: _Optional[int] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("policies", "assignments")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("policies", "assignments", "withdrawn")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    withdrawn: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., withdrawn: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("sandbox_id", "address", "generation", "owner", "token", "policy_digest", "revision", "moved")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    address: str
    generation: int
    owner: str
    token: str
    policy_digest: str
    revision: int
    moved: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., address: _Optional[str] = ..., generation: _Optional[int] = ..., owner: _Optional[str] = ..., token: _Optional[str] = ..., policy_digest: _Optional[str] = ..., revision: _Optional[int] = ..., moved: _Optional[bool] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("digest", "name", "mode", "allow", "deny", "limits", "dated", "until")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DATED_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    digest: str
    name: str
    mode: Mode
    allow: _containers.RepeatedCompositeFieldContainer[Rule]
    deny: _containers.RepeatedCompositeFieldContainer[Rule]
    limits: Limits
    dated: _containers.RepeatedCompositeFieldContainer[Rule]
    until: str
    def __init__(self, digest: _Optional[str] = ..., name: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., allow: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., deny: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., dated: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., until: _Optional[str] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("id", "host", "cidr", "ports")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    CIDR_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    cidr: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., cidr: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ...) -> None: ...

class PortRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("connections", "connections_per_second", "bytes_per_second", "total_bytes", "owner_connections", "owner_connections_per_second", "owner_bytes_per_second", "owner_daily_bytes")
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    OWNER_CONNECTIONS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OWNER_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OWNER_DAILY_BYTES_FIELD_NUMBER: _ClassVar[int]
    connections: int
    connections_per_second: int
    bytes_per_second: int
    total_bytes: int
    owner_connections: int
    owner_connections_per_second: int
    owner_bytes_per_second: int
    owner_daily_bytes: int
    def __init__(self, connections: _Optional[int] = ..., connections_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., total_bytes: _Optional[int] = ..., owner_connections: _Optional[int] = ..., owner_connections_per_second: _Optional[int] = ..., owner_bytes_per_second: _Optional[int] = ..., owner_daily_bytes: _Optional[int] = ...) -> None: ...

class EgressReport(_message.Message):
    __slots__ = ("egress_id", "applied", "attempts", "links", "dropped_attempts")
    EGRESS_ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    egress_id: str
    applied: _containers.RepeatedCompositeFieldContainer[Applied]
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    links: _containers.RepeatedCompositeFieldContainer[Linked]
    dropped_attempts: int
    def __init__(self, egress_id: _Optional[str] = ..., applied: _Optional[_Iterable[_Union[Applied, _Mapping]]] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Linked, _Mapping]]] = ..., dropped_attempts: _Optional[int] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("sandbox_id", "revision", "cut")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    revision: int
    cut: int
    def __init__(self, sandbox_id: _Optional[str] = ..., revision: _Optional[int] = ..., cut: _Optional[int] = ...) -> None: ...

class Linked(_message.Message):
    __slots__ = ("sandbox_id", "up", "detail")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    up: bool
    detail: str
    def __init__(self, sandbox_id: _Optional[str] = ..., up: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("sandbox_id", "at_ms", "host", "port", "address", "verdict", "policy", "rule", "protocol", "sent_bytes", "received_bytes", "duration_ms", "count")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    at_ms: int
    host: str
    port: int
    address: str
    verdict: Verdict
    policy: str
    rule: str
    protocol: str
    sent_bytes: int
    received_bytes: int
    duration_ms: int
    count: int
    def __init__(self, sandbox_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., address: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., policy: _Optional[str] = ..., rule: _Optional[str] = ..., protocol: _Optional[str] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., duration_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ReportTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
