from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Keep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEEP_TAIL: _ClassVar[Keep]
    KEEP_HEAD: _ClassVar[Keep]

class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_UNSPECIFIED: _ClassVar[End]
    EXITED: _ClassVar[End]
    SIGNALLED: _ClassVar[End]
    DEADLINE: _ClassVar[End]
    OOM_KILLED: _ClassVar[End]
    CANCELLED: _ClassVar[End]

class FileKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_KIND_UNSPECIFIED: _ClassVar[FileKind]
    FILE: _ClassVar[FileKind]
    DIRECTORY: _ClassVar[FileKind]
    SYMLINK: _ClassVar[FileKind]
    OTHER: _ClassVar[FileKind]

class Change(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_UNSPECIFIED: _ClassVar[Change]
    CREATED: _ClassVar[Change]
    WRITTEN: _ClassVar[Change]
    REMOVED: _ClassVar[Change]
    MOVED: _ClassVar[Change]
    ATTRIBUTES: _ClassVar[Change]
    OVERFLOWED: _ClassVar[Change]
    WATCHING: _ClassVar[Change]
KEEP_TAIL: Keep
KEEP_HEAD: Keep
END_UNSPECIFIED: End
EXITED: End
SIGNALLED: End
DEADLINE: End
OOM_KILLED: End
CANCELLED: End
FILE_KIND_UNSPECIFIED: FileKind
FILE: FileKind
DIRECTORY: FileKind
SYMLINK: FileKind
OTHER: FileKind
CHANGE_UNSPECIFIED: Change
CREATED: Change
WRITTEN: Change
REMOVED: Change
MOVED: Change
ATTRIBUTES: Change
OVERFLOWED: Change
WATCHING: Change

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

class ExecRequest(_message.Message):
    __slots__ = ("exec_id", "argv", "command", "cwd", "env", "user", "stdin", "timeout_ms", "max_output_bytes", "stdin_open", "umask", "terminal", "max_stderr_bytes", "keep", "output_waits", "merge", "orphan_grace_ms")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDIN_OPEN_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    MAX_STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WAITS_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    ORPHAN_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    command: str
    cwd: str
    env: _containers.ScalarMap[str, str]
    user: str
    stdin: bytes
    timeout_ms: int
    max_output_bytes: int
    stdin_open: bool
    umask: int
    terminal: TerminalSize
    max_stderr_bytes: int
    keep: Keep
    output_waits: bool
    merge: bool
    orphan_grace_ms: int
    def __init__(self, exec_id: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., command: _Optional[str] = ..., cwd: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., user: _Optional[str] = ..., stdin: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., max_output_bytes: _Optional[int] = ..., stdin_open: _Optional[bool] = ..., umask: _Optional[int] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ..., max_stderr_bytes: _Optional[int] = ..., keep: _Optional[_Union[Keep, str]] = ..., output_waits: _Optional[bool] = ..., merge: _Optional[bool] = ..., orphan_grace_ms: _Optional[int] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("data", "total_bytes", "truncated")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    total_bytes: int
    truncated: bool
    def __init__(self, data: _Optional[bytes] = ..., total_bytes: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ExecResult(_message.Message):
    __slots__ = ("exec_id", "end", "exit_code", "signal", "stdout", "stderr", "spawn_us", "run_us", "replayed")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    SPAWN_US_FIELD_NUMBER: _ClassVar[int]
    RUN_US_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    end: End
    exit_code: int
    signal: int
    stdout: Output
    stderr: Output
    spawn_us: int
    run_us: int
    replayed: bool
    def __init__(self, exec_id: _Optional[str] = ..., end: _Optional[_Union[End, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., stdout: _Optional[_Union[Output, _Mapping]] = ..., stderr: _Optional[_Union[Output, _Mapping]] = ..., spawn_us: _Optional[int] = ..., run_us: _Optional[int] = ..., replayed: _Optional[bool] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("exec_id", "pid", "spawn_us", "replayed")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SPAWN_US_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    pid: int
    spawn_us: int
    replayed: bool
    def __init__(self, exec_id: _Optional[str] = ..., pid: _Optional[int] = ..., spawn_us: _Optional[int] = ..., replayed: _Optional[bool] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("exec_id", "stdout_offset", "stderr_offset")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STDERR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    stdout_offset: int
    stderr_offset: int
    def __init__(self, exec_id: _Optional[str] = ..., stdout_offset: _Optional[int] = ..., stderr_offset: _Optional[int] = ...) -> None: ...

class AttachEvent(_message.Message):
    __slots__ = ("stdout", "stderr", "result")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    stdout: Chunk
    stderr: Chunk
    result: ExecResult
    def __init__(self, stdout: _Optional[_Union[Chunk, _Mapping]] = ..., stderr: _Optional[_Union[Chunk, _Mapping]] = ..., result: _Optional[_Union[ExecResult, _Mapping]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class StdinChunk(_message.Message):
    __slots__ = ("exec_id", "offset", "data", "eof")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    offset: int
    data: bytes
    eof: bool
    def __init__(self, exec_id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., eof: _Optional[bool] = ...) -> None: ...

class StdinAccepted(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class SignalRequest(_message.Message):
    __slots__ = ("exec_id", "signal", "tree", "command_id", "spared")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    SPARED_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    signal: int
    tree: bool
    command_id: str
    spared: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, exec_id: _Optional[str] = ..., signal: _Optional[int] = ..., tree: _Optional[bool] = ..., command_id: _Optional[str] = ..., spared: _Optional[_Iterable[int]] = ...) -> None: ...

class SignalSent(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("exec_id", "terminal")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    terminal: TerminalSize
    def __init__(self, exec_id: _Optional[str] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class Resized(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("exec_id",)
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    def __init__(self, exec_id: _Optional[str] = ...) -> None: ...

class CancelAllRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelledAll(_message.Message):
    __slots__ = ("cancelled", "left")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    cancelled: int
    left: int
    def __init__(self, cancelled: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("execs",)
    EXECS_FIELD_NUMBER: _ClassVar[int]
    execs: _containers.RepeatedCompositeFieldContainer[ExecSummary]
    def __init__(self, execs: _Optional[_Iterable[_Union[ExecSummary, _Mapping]]] = ...) -> None: ...

class ExecSummary(_message.Message):
    __slots__ = ("exec_id", "argv", "pid", "started_at_ms", "running", "end", "exit_code", "stdout_bytes", "stderr_bytes", "ended_at_ms", "oom_kills")
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    exec_id: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    pid: int
    started_at_ms: int
    running: bool
    end: End
    exit_code: int
    stdout_bytes: int
    stderr_bytes: int
    ended_at_ms: int
    oom_kills: int
    def __init__(self, exec_id: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., pid: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., running: _Optional[bool] = ..., end: _Optional[_Union[End, str]] = ..., exit_code: _Optional[int] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., oom_kills: _Optional[int] = ...) -> None: ...

class ReadFileRequest(_message.Message):
    __slots__ = ("path", "offset_bytes", "length_bytes", "user", "ticket")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    offset_bytes: int
    length_bytes: int
    user: str
    ticket: bytes
    def __init__(self, path: _Optional[bytes] = ..., offset_bytes: _Optional[int] = ..., length_bytes: _Optional[int] = ..., user: _Optional[str] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("data", "sha256", "info", "moved")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    sha256: bytes
    info: FileInfo
    moved: bool
    def __init__(self, data: _Optional[bytes] = ..., sha256: _Optional[bytes] = ..., info: _Optional[_Union[FileInfo, _Mapping]] = ..., moved: _Optional[bool] = ...) -> None: ...

class WriteFileRequest(_message.Message):
    __slots__ = ("path", "mode", "user", "size_bytes", "sha256", "data", "parents", "owner", "eof", "ticket", "moved", "moved_bytes", "keep_mode", "in_place", "modified_at_ms")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_MODE_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    mode: int
    user: str
    size_bytes: int
    sha256: bytes
    data: bytes
    parents: bool
    owner: str
    eof: bool
    ticket: bytes
    moved: bool
    moved_bytes: int
    keep_mode: bool
    in_place: bool
    modified_at_ms: int
    def __init__(self, path: _Optional[bytes] = ..., mode: _Optional[int] = ..., user: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., data: _Optional[bytes] = ..., parents: _Optional[bool] = ..., owner: _Optional[str] = ..., eof: _Optional[bool] = ..., ticket: _Optional[bytes] = ..., moved: _Optional[bool] = ..., moved_bytes: _Optional[int] = ..., keep_mode: _Optional[bool] = ..., in_place: _Optional[bool] = ..., modified_at_ms: _Optional[int] = ...) -> None: ...

class PathRequest(_message.Message):
    __slots__ = ("path", "user", "follow")
    PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    user: str
    follow: bool
    def __init__(self, path: _Optional[bytes] = ..., user: _Optional[str] = ..., follow: _Optional[bool] = ...) -> None: ...

class ListDirectoryRequest(_message.Message):
    __slots__ = ("path", "recursive", "limit", "user")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    recursive: bool
    limit: int
    user: str
    def __init__(self, path: _Optional[bytes] = ..., recursive: _Optional[bool] = ..., limit: _Optional[int] = ..., user: _Optional[str] = ...) -> None: ...

class MakeDirectoryRequest(_message.Message):
    __slots__ = ("path", "user", "parents", "mode")
    PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    user: str
    parents: bool
    mode: int
    def __init__(self, path: _Optional[bytes] = ..., user: _Optional[str] = ..., parents: _Optional[bool] = ..., mode: _Optional[int] = ...) -> None: ...

class MoveFileRequest(_message.Message):
    __slots__ = ("to", "replace", "user", "parents")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    to: bytes
    replace: bool
    user: str
    parents: bool
    def __init__(self, to: _Optional[bytes] = ..., replace: _Optional[bool] = ..., user: _Optional[str] = ..., parents: _Optional[bool] = ..., **kwargs) -> None: ...

class RemoveFileRequest(_message.Message):
    __slots__ = ("path", "recursive", "user", "missing_ok")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    MISSING_OK_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    recursive: bool
    user: str
    missing_ok: bool
    def __init__(self, path: _Optional[bytes] = ..., recursive: _Optional[bool] = ..., user: _Optional[str] = ..., missing_ok: _Optional[bool] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class FileInfo(_message.Message):
    __slots__ = ("path", "kind", "size_bytes", "mode", "uid", "gid", "modified_at_ms", "link_target", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    kind: FileKind
    size_bytes: int
    mode: int
    uid: int
    gid: int
    modified_at_ms: int
    link_target: bytes
    sha256: bytes
    def __init__(self, path: _Optional[bytes] = ..., kind: _Optional[_Union[FileKind, str]] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., modified_at_ms: _Optional[int] = ..., link_target: _Optional[bytes] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ReadArchiveRequest(_message.Message):
    __slots__ = ("path", "user", "ticket")
    PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    user: str
    ticket: bytes
    def __init__(self, path: _Optional[bytes] = ..., user: _Optional[str] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class WriteArchiveRequest(_message.Message):
    __slots__ = ("path", "user", "data", "parents", "eof", "ticket", "moved", "moved_bytes", "in_place")
    PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    user: str
    data: bytes
    parents: bool
    eof: bool
    ticket: bytes
    moved: bool
    moved_bytes: int
    in_place: bool
    def __init__(self, path: _Optional[bytes] = ..., user: _Optional[str] = ..., data: _Optional[bytes] = ..., parents: _Optional[bool] = ..., eof: _Optional[bool] = ..., ticket: _Optional[bytes] = ..., moved: _Optional[bool] = ..., moved_bytes: _Optional[int] = ..., in_place: _Optional[bool] = ...) -> None: ...

class ArchiveWritten(_message.Message):
    __slots__ = ("count", "size_bytes", "skipped")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    count: int
    size_bytes: int
    skipped: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., skipped: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("path", "recursive", "user")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    recursive: bool
    user: str
    def __init__(self, path: _Optional[bytes] = ..., recursive: _Optional[bool] = ..., user: _Optional[str] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("change", "path")
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    change: Change
    path: bytes
    def __init__(self, change: _Optional[_Union[Change, str]] = ..., path: _Optional[bytes] = ..., **kwargs) -> None: ...

class PortFrame(_message.Message):
    __slots__ = ("port", "datagrams", "data", "eof", "ticket", "moved")
    PORT_FIELD_NUMBER: _ClassVar[int]
    DATAGRAMS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    port: int
    datagrams: bool
    data: bytes
    eof: bool
    ticket: bytes
    moved: bool
    def __init__(self, port: _Optional[int] = ..., datagrams: _Optional[bool] = ..., data: _Optional[bytes] = ..., eof: _Optional[bool] = ..., ticket: _Optional[bytes] = ..., moved: _Optional[bool] = ...) -> None: ...

class WaitPortRequest(_message.Message):
    __slots__ = ("port", "timeout_ms")
    PORT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    port: int
    timeout_ms: int
    def __init__(self, port: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class PortState(_message.Message):
    __slots__ = ("listening",)
    LISTENING_FIELD_NUMBER: _ClassVar[int]
    listening: bool
    def __init__(self, listening: _Optional[bool] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("cpu_us", "memory_bytes", "memory_limit_bytes", "disk_bytes", "disk_limit_bytes", "processes", "processes_limit", "counter", "memory_files_bytes")
    class Counter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COUNTER_UNSPECIFIED: _ClassVar[UsageReport.Counter]
        NODE: _ClassVar[UsageReport.Counter]
        SANDBOX: _ClassVar[UsageReport.Counter]
    COUNTER_UNSPECIFIED: UsageReport.Counter
    NODE: UsageReport.Counter
    SANDBOX: UsageReport.Counter
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FILES_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu_us: int
    memory_bytes: int
    memory_limit_bytes: int
    disk_bytes: int
    disk_limit_bytes: int
    processes: int
    processes_limit: int
    counter: UsageReport.Counter
    memory_files_bytes: int
    def __init__(self, cpu_us: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_limit_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., processes_limit: _Optional[int] = ..., counter: _Optional[_Union[UsageReport.Counter, str]] = ..., memory_files_bytes: _Optional[int] = ...) -> None: ...

class ConfigureRequest(_message.Message):
    __slots__ = ("env", "cwd", "user", "digest", "make_cwd")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAKE_CWD_FIELD_NUMBER: _ClassVar[int]
    env: _containers.ScalarMap[str, str]
    cwd: str
    user: str
    digest: str
    make_cwd: bool
    def __init__(self, env: _Optional[_Mapping[str, str]] = ..., cwd: _Optional[str] = ..., user: _Optional[str] = ..., digest: _Optional[str] = ..., make_cwd: _Optional[bool] = ...) -> None: ...

class Configured(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthResponse(_message.Message):
    __slots__ = ("sandbox_id", "kernel", "uptime_ms", "running_execs", "acknowledged", "quiet_us")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_EXECS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    QUIET_US_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    kernel: str
    uptime_ms: int
    running_execs: int
    acknowledged: bool
    quiet_us: int
    def __init__(self, sandbox_id: _Optional[str] = ..., kernel: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., running_execs: _Optional[int] = ..., acknowledged: _Optional[bool] = ..., quiet_us: _Optional[int] = ...) -> None: ...

class OpenEgressRequest(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    def __init__(self, ticket: _Optional[bytes] = ...) -> None: ...

class EgressOpened(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: int
    def __init__(self, refused: _Optional[int] = ...) -> None: ...

class ListRefusedRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefusedList(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refused]
    def __init__(self, refused: _Optional[_Iterable[_Union[Refused, _Mapping]]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("at_ms", "host", "port", "protocol", "lost", "count")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    host: str
    port: int
    protocol: str
    lost: bool
    count: int
    def __init__(self, at_ms: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ..., lost: _Optional[bool] = ..., count: _Optional[int] = ...) -> None: ...
