"""The messages of the service that Prime's clients call in a sandbox, as on the wire. Pure."""

from __future__ import annotations

from typing import Any, Final

from rollbox_bridges.connect.declared import messages

SERVICE: Final = "command_session.CommandSession"
_TABLE: Final = """
Size: 1 cols uint32, 2 rows uint32
PTY: 1 size Size
CommandSpec: 1 cmd string, 2 args string*, 3 envs map, 4 cwd string?, 5 user string?
CommandSessionSelector: 1 pid uint32?, 3 session_uuid string?
CommandInput: 1 stdin bytes?, 2 pty bytes?
CommandSessionInfo: 1 command CommandSpec, 2 pid uint32, 4 session_uuid string?
KeepAlive:
Started: 1 pid uint32
Data: 1 stdout bytes?, 2 stderr bytes?, 3 pty bytes?
Ended: 1 exit_code sint32, 2 exited bool, 3 status string, 4 error string?
CommandSessionEvent: 1 start Started, 2 data Data, 3 end Ended, 4 keepalive KeepAlive
StartRequest: 1 command CommandSpec, 2 pty PTY, 4 stdin bool?, 5 session_uuid string?
StartResponse: 1 event CommandSessionEvent
ConnectRequest: 1 session CommandSessionSelector
ConnectResponse: 1 event CommandSessionEvent
ListRequest:
ListResponse: 1 sessions CommandSessionInfo*
UpdateRequest: 1 session CommandSessionSelector, 2 pty PTY
UpdateResponse:
SendInputRequest: 1 session CommandSessionSelector, 2 input CommandInput, 3 input_uuid string?
SendInputResponse:
StreamStart: 1 session CommandSessionSelector
StreamData: 1 input CommandInput
StreamInputRequest: 1 start StreamStart, 2 data StreamData, 3 keepalive KeepAlive
StreamInputResponse:
SendSignalRequest: 1 session CommandSessionSelector, 2 signal Signal, 3 signal_uuid string?
SendSignalResponse:
enum Signal: 0 SIGNAL_UNSPECIFIED, 9 SIGNAL_SIGKILL, 15 SIGNAL_SIGTERM
"""

SESSION: Final[dict[str, Any]] = dict(messages("command_session", _TABLE))
"""The messages of `command_session.CommandSession`, by name."""
