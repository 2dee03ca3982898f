from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GetGroupReply(_message.Message):
    __slots__ = ("target", "machines", "version")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    target: int
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    version: str
    def __init__(self, target: _Optional[int] = ..., machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("id", "node", "failed")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    id: str
    node: str
    failed: str
    def __init__(self, id: _Optional[str] = ..., node: _Optional[str] = ..., failed: _Optional[str] = ...) -> None: ...

class SetTargetRequest(_message.Message):
    __slots__ = ("group", "target", "version")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    group: str
    target: int
    version: str
    def __init__(self, group: _Optional[str] = ..., target: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class SetTargetReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveMachinesRequest(_message.Message):
    __slots__ = ("group", "ids", "version")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    group: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    version: str
    def __init__(self, group: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ...) -> None: ...

class RemoveMachinesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
