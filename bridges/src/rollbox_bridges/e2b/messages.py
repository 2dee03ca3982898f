"""The messages of the two services that E2B's clients call in a sandbox, as on the wire. Pure."""

from __future__ import annotations

from typing import Any, Final

from rollbox_bridges.connect.declared import messages

_PROCESS: Final = """
Size: 1 cols uint32, 2 rows uint32
Pty: 1 size Size
ProcessConfig: 1 cmd string, 2 args string*, 3 envs map, 4 cwd string?
ProcessSelector: 1 pid uint32?, 2 tag string?
ProcessInput: 1 stdin bytes?, 2 pty bytes?
ProcessInfo: 1 config ProcessConfig, 2 pid uint32, 3 tag string?
KeepAlive:
Started: 1 pid uint32
Data: 1 stdout bytes?, 2 stderr bytes?, 3 pty bytes?
Ended: 1 exit_code sint32, 2 exited bool, 3 status string, 4 error string?
ProcessEvent: 1 start Started, 2 data Data, 3 end Ended, 4 keepalive KeepAlive
StartRequest: 1 process ProcessConfig, 2 pty Pty, 3 tag string?, 4 stdin bool?
StartResponse: 1 event ProcessEvent
ConnectRequest: 1 process ProcessSelector
ConnectResponse: 1 event ProcessEvent
ListRequest:
ListResponse: 1 processes ProcessInfo*
UpdateRequest: 1 process ProcessSelector, 2 pty Pty
UpdateResponse:
SendInputRequest: 1 process ProcessSelector, 2 input ProcessInput
SendInputResponse:
StreamStart: 1 process ProcessSelector
StreamData: 2 input ProcessInput
StreamInputRequest: 1 start StreamStart, 2 data StreamData, 3 keepalive KeepAlive
StreamInputResponse:
SendSignalRequest: 1 process ProcessSelector, 2 signal Signal
SendSignalResponse:
CloseStdinRequest: 1 process ProcessSelector
CloseStdinResponse:
enum Signal: 0 SIGNAL_UNSPECIFIED, 9 SIGNAL_SIGKILL, 15 SIGNAL_SIGTERM
"""
_FILESYSTEM: Final = """
EntryInfo: 1 name string, 2 type FileType, 3 path string, 4 size int64, 5 mode uint32, 6 permissions string,
    7 owner string, 8 group string, 9 modified_time Timestamp, 10 symlink_target string?, 12 is_symlink bool
StatRequest: 1 path string
StatResponse: 1 entry EntryInfo
MakeDirRequest: 1 path string
MakeDirResponse: 1 entry EntryInfo
MoveRequest: 1 source string, 2 destination string
MoveResponse: 1 entry EntryInfo
ListDirRequest: 1 path string, 2 depth uint32
ListDirResponse: 1 entries EntryInfo*
RemoveRequest: 1 path string
RemoveResponse:
WatchDirRequest: 1 path string, 2 recursive bool
Watching:
Change: 1 name string, 2 type EventType
KeepAlive:
WatchDirResponse: 1 start Watching, 2 filesystem Change, 3 keepalive KeepAlive
CreateWatcherRequest: 1 path string, 2 recursive bool
CreateWatcherResponse: 1 watcher_id string
GetWatcherEventsRequest: 1 watcher_id string
GetWatcherEventsResponse: 1 events Change*
RemoveWatcherRequest: 1 watcher_id string
RemoveWatcherResponse:
enum FileType: 0 FILE_TYPE_UNSPECIFIED, 1 FILE_TYPE_FILE, 2 FILE_TYPE_DIRECTORY, 3 FILE_TYPE_SYMLINK
enum EventType: 0 EVENT_TYPE_UNSPECIFIED, 1 EVENT_TYPE_CREATE, 2 EVENT_TYPE_WRITE, 3 EVENT_TYPE_REMOVE,
    4 EVENT_TYPE_RENAME, 5 EVENT_TYPE_CHMOD
"""

PROCESS: Final[dict[str, Any]] = dict(messages("process", _PROCESS))
"""The messages of `process.Process`, by name."""
FILESYSTEM: Final[dict[str, Any]] = dict(messages("filesystem", _FILESYSTEM))
"""The messages of `filesystem.Filesystem`, by name."""
