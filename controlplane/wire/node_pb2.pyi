from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Problem(_message.Message):
    __slots__ = ("code", "detail", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    detail: str
    details: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[str] = ..., detail: _Optional[str] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("node", "runtime", "handler", "handler_version", "snapshotter", "images_free_bytes", "images_size_bytes", "health")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    HANDLER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    node: str
    runtime: str
    handler: str
    handler_version: str
    snapshotter: str
    images_free_bytes: int
    images_size_bytes: int
    health: Health
    def __init__(self, node: _Optional[str] = ..., runtime: _Optional[str] = ..., handler: _Optional[str] = ..., handler_version: _Optional[str] = ..., snapshotter: _Optional[str] = ..., images_free_bytes: _Optional[int] = ..., images_size_bytes: _Optional[int] = ..., health: _Optional[_Union[Health, _Mapping]] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("troubles", "installer", "installer_detail", "programs", "lazy_trouble", "low", "broken")
    class ProgramsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    INSTALLER_FIELD_NUMBER: _ClassVar[int]
    INSTALLER_DETAIL_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    LAZY_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    troubles: _containers.RepeatedScalarFieldContainer[str]
    installer: str
    installer_detail: str
    programs: _containers.ScalarMap[str, str]
    lazy_trouble: str
    low: _containers.RepeatedScalarFieldContainer[str]
    broken: _containers.RepeatedCompositeFieldContainer[Broken]
    def __init__(self, troubles: _Optional[_Iterable[str]] = ..., installer: _Optional[str] = ..., installer_detail: _Optional[str] = ..., programs: _Optional[_Mapping[str, str]] = ..., lazy_trouble: _Optional[str] = ..., low: _Optional[_Iterable[str]] = ..., broken: _Optional[_Iterable[_Union[Broken, _Mapping]]] = ...) -> None: ...

class Broken(_message.Message):
    __slots__ = ("digest", "why")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    digest: str
    why: str
    def __init__(self, digest: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ListImagesRequest(_message.Message):
    __slots__ = ("layers", "known", "changes")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    layers: bool
    known: str
    changes: bool
    def __init__(self, layers: _Optional[bool] = ..., known: _Optional[str] = ..., changes: _Optional[bool] = ...) -> None: ...

class ImageList(_message.Message):
    __slots__ = ("images", "version", "unchanged", "changes", "gone")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    images: _containers.RepeatedCompositeFieldContainer[Image]
    version: str
    unchanged: bool
    changes: bool
    gone: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., version: _Optional[str] = ..., unchanged: _Optional[bool] = ..., changes: _Optional[bool] = ..., gone: _Optional[_Iterable[int]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("names", "digests", "id", "size_bytes", "pinned", "lazy", "last_used_ms", "containers", "brought_ms", "layers", "mark")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    LAZY_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_MS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    BROUGHT_MS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    digests: _containers.RepeatedScalarFieldContainer[str]
    id: str
    size_bytes: int
    pinned: bool
    lazy: bool
    last_used_ms: int
    containers: int
    brought_ms: int
    layers: _containers.RepeatedCompositeFieldContainer[Layer]
    mark: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., digests: _Optional[_Iterable[str]] = ..., id: _Optional[str] = ..., size_bytes: _Optional[int] = ..., pinned: _Optional[bool] = ..., lazy: _Optional[bool] = ..., last_used_ms: _Optional[int] = ..., containers: _Optional[int] = ..., brought_ms: _Optional[int] = ..., layers: _Optional[_Iterable[_Union[Layer, _Mapping]]] = ..., mark: _Optional[int] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("digest", "size_bytes")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class Credentials(_message.Message):
    __slots__ = ("username", "password", "identity_token")
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    username: str
    password: str
    identity_token: str
    def __init__(self, username: _Optional[str] = ..., password: _Optional[str] = ..., identity_token: _Optional[str] = ...) -> None: ...

class PrefetchRequest(_message.Message):
    __slots__ = ("image", "credentials", "handler")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    image: str
    credentials: Credentials
    handler: str
    def __init__(self, image: _Optional[str] = ..., credentials: _Optional[_Union[Credentials, _Mapping]] = ..., handler: _Optional[str] = ...) -> None: ...

class PrefetchProgress(_message.Message):
    __slots__ = ("state", "done_bytes", "total_bytes")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[PrefetchProgress.State]
        WAITING: _ClassVar[PrefetchProgress.State]
        PULLING: _ClassVar[PrefetchProgress.State]
        HERE: _ClassVar[PrefetchProgress.State]
    STATE_UNSPECIFIED: PrefetchProgress.State
    WAITING: PrefetchProgress.State
    PULLING: PrefetchProgress.State
    HERE: PrefetchProgress.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    state: PrefetchProgress.State
    done_bytes: int
    total_bytes: int
    def __init__(self, state: _Optional[_Union[PrefetchProgress.State, str]] = ..., done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class RemoveImageRequest(_message.Message):
    __slots__ = ("image", "brought")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    BROUGHT_FIELD_NUMBER: _ClassVar[int]
    image: str
    brought: bool
    def __init__(self, image: _Optional[str] = ..., brought: _Optional[bool] = ...) -> None: ...

class ImageRemoved(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: _Optional[bool] = ...) -> None: ...

class KillRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class Killed(_message.Message):
    __slots__ = ("pids",)
    PIDS_FIELD_NUMBER: _ClassVar[int]
    pids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pids: _Optional[_Iterable[int]] = ...) -> None: ...

class Registry(_message.Message):
    __slots__ = ("address", "credentials", "authority", "connect")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    address: str
    credentials: Credentials
    authority: str
    connect: str
    def __init__(self, address: _Optional[str] = ..., credentials: _Optional[_Union[Credentials, _Mapping]] = ..., authority: _Optional[str] = ..., connect: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("sandbox_id", "container", "registry", "base", "target", "max_bytes", "still_ms", "squash")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    STILL_MS_FIELD_NUMBER: _ClassVar[int]
    SQUASH_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    container: str
    registry: Registry
    base: str
    target: str
    max_bytes: int
    still_ms: int
    squash: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., container: _Optional[str] = ..., registry: _Optional[_Union[Registry, _Mapping]] = ..., base: _Optional[str] = ..., target: _Optional[str] = ..., max_bytes: _Optional[int] = ..., still_ms: _Optional[int] = ..., squash: _Optional[bool] = ...) -> None: ...

class CommitProgress(_message.Message):
    __slots__ = ("reading", "committed")
    class Reading(_message.Message):
        __slots__ = ("done_bytes", "total_bytes")
        DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
        TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
        done_bytes: int
        total_bytes: int
        def __init__(self, done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...
    READING_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    reading: CommitProgress.Reading
    committed: Committed
    def __init__(self, reading: _Optional[_Union[CommitProgress.Reading, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("digest", "size_bytes", "skipped", "skipped_more", "still_us")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_MORE_FIELD_NUMBER: _ClassVar[int]
    STILL_US_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    skipped: _containers.RepeatedScalarFieldContainer[str]
    skipped_more: int
    still_us: int
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., skipped: _Optional[_Iterable[str]] = ..., skipped_more: _Optional[int] = ..., still_us: _Optional[int] = ...) -> None: ...

class RecordRequest(_message.Message):
    __slots__ = ("sandbox_id", "container")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    container: str
    def __init__(self, sandbox_id: _Optional[str] = ..., container: _Optional[str] = ...) -> None: ...

class ContainerRecordRequest(_message.Message):
    __slots__ = ("container_id",)
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    def __init__(self, container_id: _Optional[str] = ...) -> None: ...

class Recording(_message.Message):
    __slots__ = ("begun", "opened")
    class Begun(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Opened(_message.Message):
        __slots__ = ("paths", "more")
        PATHS_FIELD_NUMBER: _ClassVar[int]
        MORE_FIELD_NUMBER: _ClassVar[int]
        paths: _containers.RepeatedScalarFieldContainer[str]
        more: bool
        def __init__(self, paths: _Optional[_Iterable[str]] = ..., more: _Optional[bool] = ...) -> None: ...
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    begun: Recording.Begun
    opened: Recording.Opened
    def __init__(self, begun: _Optional[_Union[Recording.Begun, _Mapping]] = ..., opened: _Optional[_Union[Recording.Opened, _Mapping]] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("cpu_us",)
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    cpu_us: int
    def __init__(self, cpu_us: _Optional[int] = ...) -> None: ...
