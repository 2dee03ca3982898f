from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("gateway_id",)
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    def __init__(self, gateway_id: _Optional[str] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("version", "snapshot", "delta", "heartbeat", "changed_at_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    snapshot: Snapshot
    delta: Delta
    heartbeat: Heartbeat
    changed_at_ms: int
    def __init__(self, version: _Optional[int] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., changed_at_ms: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("routes", "ends", "more")
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    ends: _containers.RepeatedCompositeFieldContainer[EndOfSandbox]
    more: bool
    def __init__(self, routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[EndOfSandbox, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("routes", "ends")
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    ends: _containers.RepeatedCompositeFieldContainer[EndOfSandbox]
    def __init__(self, routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[EndOfSandbox, _Mapping]]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("sandbox_id", "address", "generation", "owner", "ports_revision", "public_ports", "draining_at_ms")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PORTS_REVISION_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_PORTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_AT_MS_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    address: str
    generation: int
    owner: str
    ports_revision: int
    public_ports: _containers.RepeatedCompositeFieldContainer[PublicPort]
    draining_at_ms: int
    def __init__(self, sandbox_id: _Optional[str] = ..., address: _Optional[str] = ..., generation: _Optional[int] = ..., owner: _Optional[str] = ..., ports_revision: _Optional[int] = ..., public_ports: _Optional[_Iterable[_Union[PublicPort, _Mapping]]] = ..., draining_at_ms: _Optional[int] = ...) -> None: ...

class PublicPort(_message.Message):
    __slots__ = ("port", "token")
    PORT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    port: int
    token: str
    def __init__(self, port: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class EndOfSandbox(_message.Message):
    __slots__ = ("sandbox_id", "generation", "cause", "detail", "at_ms", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    generation: int
    cause: str
    detail: str
    at_ms: int
    details: _containers.ScalarMap[str, str]
    def __init__(self, sandbox_id: _Optional[str] = ..., generation: _Optional[int] = ..., cause: _Optional[str] = ..., detail: _Optional[str] = ..., at_ms: _Optional[int] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ActivityReport(_message.Message):
    __slots__ = ("gateway_id", "used")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    used: _containers.RepeatedCompositeFieldContainer[Used]
    def __init__(self, gateway_id: _Optional[str] = ..., used: _Optional[_Iterable[_Union[Used, _Mapping]]] = ...) -> None: ...

class Used(_message.Message):
    __slots__ = ("sandbox_id", "since_us")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    since_us: int
    def __init__(self, sandbox_id: _Optional[str] = ..., since_us: _Optional[int] = ...) -> None: ...

class ActivityTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class NodeUsage(_message.Message):
    __slots__ = ("cpu_us",)
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    cpu_us: int
    def __init__(self, cpu_us: _Optional[int] = ...) -> None: ...
