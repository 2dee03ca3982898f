from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RoomRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RoomReply(_message.Message):
    __slots__ = ("disk_bytes", "used_bytes", "free_bytes", "full")
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    disk_bytes: int
    used_bytes: int
    free_bytes: int
    full: bool
    def __init__(self, disk_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., full: _Optional[bool] = ...) -> None: ...

class ListStoredRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStoredReply(_message.Message):
    __slots__ = ("parts", "images")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[StoredPart]
    images: _containers.RepeatedCompositeFieldContainer[StoredImage]
    def __init__(self, parts: _Optional[_Iterable[_Union[StoredPart, _Mapping]]] = ..., images: _Optional[_Iterable[_Union[StoredImage, _Mapping]]] = ...) -> None: ...

class StoredPart(_message.Message):
    __slots__ = ("sha256", "size_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size_bytes: int
    def __init__(self, sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class StoredImage(_message.Message):
    __slots__ = ("repository", "sha256", "used_ms", "sources", "parts", "recorded", "recorded_for", "offered")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FOR_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    repository: str
    sha256: bytes
    used_ms: int
    sources: _containers.RepeatedScalarFieldContainer[bytes]
    parts: _containers.RepeatedScalarFieldContainer[int]
    recorded: bool
    recorded_for: _containers.RepeatedScalarFieldContainer[str]
    offered: bool
    def __init__(self, repository: _Optional[str] = ..., sha256: _Optional[bytes] = ..., used_ms: _Optional[int] = ..., sources: _Optional[_Iterable[bytes]] = ..., parts: _Optional[_Iterable[int]] = ..., recorded: _Optional[bool] = ..., recorded_for: _Optional[_Iterable[str]] = ..., offered: _Optional[bool] = ...) -> None: ...

class UseCopyRequest(_message.Message):
    __slots__ = ("repository", "digest")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    repository: str
    digest: str
    def __init__(self, repository: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class UseCopyReply(_message.Message):
    __slots__ = ("there",)
    THERE_FIELD_NUMBER: _ClassVar[int]
    there: bool
    def __init__(self, there: _Optional[bool] = ...) -> None: ...

class RemoveCopyRequest(_message.Message):
    __slots__ = ("repository", "digest", "unused_since_ms")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    UNUSED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    repository: str
    digest: str
    unused_since_ms: int
    def __init__(self, repository: _Optional[str] = ..., digest: _Optional[str] = ..., unused_since_ms: _Optional[int] = ...) -> None: ...

class RemoveCopyReply(_message.Message):
    __slots__ = ("there",)
    THERE_FIELD_NUMBER: _ClassVar[int]
    there: bool
    def __init__(self, there: _Optional[bool] = ...) -> None: ...

class RecordedRequest(_message.Message):
    __slots__ = ("owner",)
    OWNER_FIELD_NUMBER: _ClassVar[int]
    owner: str
    def __init__(self, owner: _Optional[str] = ...) -> None: ...

class RecordedReply(_message.Message):
    __slots__ = ("copies", "bytes")
    COPIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    copies: int
    bytes: int
    def __init__(self, copies: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CollectRequest(_message.Message):
    __slots__ = ("urgent",)
    URGENT_FIELD_NUMBER: _ClassVar[int]
    urgent: bool
    def __init__(self, urgent: _Optional[bool] = ...) -> None: ...

class CollectReply(_message.Message):
    __slots__ = ("freed_bytes", "freed_blobs", "ended_uploads", "kept_blobs", "blobs")
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_BLOBS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UPLOADS_FIELD_NUMBER: _ClassVar[int]
    KEPT_BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    freed_blobs: int
    ended_uploads: int
    kept_blobs: int
    blobs: int
    def __init__(self, freed_bytes: _Optional[int] = ..., freed_blobs: _Optional[int] = ..., ended_uploads: _Optional[int] = ..., kept_blobs: _Optional[int] = ..., blobs: _Optional[int] = ...) -> None: ...
