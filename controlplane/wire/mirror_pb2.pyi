from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ImageForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_FORM_UNSPECIFIED: _ClassVar[ImageForm]
    PLAIN: _ClassVar[ImageForm]
    ESTARGZ: _ClassVar[ImageForm]
IMAGE_FORM_UNSPECIFIED: ImageForm
PLAIN: ImageForm
ESTARGZ: ImageForm

class CopyRequest(_message.Message):
    __slots__ = ("source", "upstream", "target", "form", "architectures", "tag", "through", "no_room", "first", "whose")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURES_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    NO_ROOM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    WHOSE_FIELD_NUMBER: _ClassVar[int]
    source: str
    upstream: UpstreamCredentials
    target: str
    form: ImageForm
    architectures: _containers.RepeatedScalarFieldContainer[str]
    tag: str
    through: str
    no_room: bool
    first: _containers.RepeatedScalarFieldContainer[str]
    whose: str
    def __init__(self, source: _Optional[str] = ..., upstream: _Optional[_Union[UpstreamCredentials, _Mapping]] = ..., target: _Optional[str] = ..., form: _Optional[_Union[ImageForm, str]] = ..., architectures: _Optional[_Iterable[str]] = ..., tag: _Optional[str] = ..., through: _Optional[str] = ..., no_room: _Optional[bool] = ..., first: _Optional[_Iterable[str]] = ..., whose: _Optional[str] = ...) -> None: ...

class UpstreamCredentials(_message.Message):
    __slots__ = ("username", "password")
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    username: str
    password: str
    def __init__(self, username: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class CopyUpdate(_message.Message):
    __slots__ = ("progress", "copied")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    progress: CopyProgress
    copied: Copied
    def __init__(self, progress: _Optional[_Union[CopyProgress, _Mapping]] = ..., copied: _Optional[_Union[Copied, _Mapping]] = ...) -> None: ...

class CopyProgress(_message.Message):
    __slots__ = ("phase", "done_layers", "total_layers", "done_bytes", "total_bytes", "pause_ms")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[CopyProgress.Phase]
        WAITING: _ClassVar[CopyProgress.Phase]
        COPYING: _ClassVar[CopyProgress.Phase]
        CONVERTING: _ClassVar[CopyProgress.Phase]
        PAUSED: _ClassVar[CopyProgress.Phase]
    PHASE_UNSPECIFIED: CopyProgress.Phase
    WAITING: CopyProgress.Phase
    COPYING: CopyProgress.Phase
    CONVERTING: CopyProgress.Phase
    PAUSED: CopyProgress.Phase
    PHASE_FIELD_NUMBER: _ClassVar[int]
    DONE_LAYERS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_LAYERS_FIELD_NUMBER: _ClassVar[int]
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    phase: CopyProgress.Phase
    done_layers: int
    total_layers: int
    done_bytes: int
    total_bytes: int
    pause_ms: int
    def __init__(self, phase: _Optional[_Union[CopyProgress.Phase, str]] = ..., done_layers: _Optional[int] = ..., total_layers: _Optional[int] = ..., done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class Copied(_message.Message):
    __slots__ = ("digest", "there", "sent_bytes", "size_bytes", "architectures")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    THERE_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    there: bool
    sent_bytes: int
    size_bytes: int
    architectures: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digest: _Optional[str] = ..., there: _Optional[bool] = ..., sent_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ..., architectures: _Optional[_Iterable[str]] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("repository", "reference", "form", "architectures", "whose")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURES_FIELD_NUMBER: _ClassVar[int]
    WHOSE_FIELD_NUMBER: _ClassVar[int]
    repository: str
    reference: str
    form: ImageForm
    architectures: _containers.RepeatedScalarFieldContainer[str]
    whose: str
    def __init__(self, repository: _Optional[str] = ..., reference: _Optional[str] = ..., form: _Optional[_Union[ImageForm, str]] = ..., architectures: _Optional[_Iterable[str]] = ..., whose: _Optional[str] = ...) -> None: ...

class FindReply(_message.Message):
    __slots__ = ("digest", "named", "boot", "why")
    class Boot(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BOOT_UNSPECIFIED: _ClassVar[FindReply.Boot]
        BOOTED: _ClassVar[FindReply.Boot]
        FAILED: _ClassVar[FindReply.Boot]
    BOOT_UNSPECIFIED: FindReply.Boot
    BOOTED: FindReply.Boot
    FAILED: FindReply.Boot
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    digest: str
    named: str
    boot: FindReply.Boot
    why: str
    def __init__(self, digest: _Optional[str] = ..., named: _Optional[str] = ..., boot: _Optional[_Union[FindReply.Boot, str]] = ..., why: _Optional[str] = ...) -> None: ...

class JudgeRequest(_message.Message):
    __slots__ = ("repository", "source", "architectures", "digest", "boots", "why", "whose")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BOOTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WHOSE_FIELD_NUMBER: _ClassVar[int]
    repository: str
    source: str
    architectures: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    boots: bool
    why: str
    whose: str
    def __init__(self, repository: _Optional[str] = ..., source: _Optional[str] = ..., architectures: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ..., boots: _Optional[bool] = ..., why: _Optional[str] = ..., whose: _Optional[str] = ...) -> None: ...

class JudgeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
