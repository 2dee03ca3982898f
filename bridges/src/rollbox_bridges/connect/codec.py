"""The two codecs of Connect, JSON and binary, over the same messages. Pure."""

from __future__ import annotations

import json
from typing import Final, Literal, NamedTuple, TypeVar

from google.protobuf import json_format, unknown_fields
from google.protobuf.message import DecodeError, Message

from rollbox_bridges.connect.codes import ConnectError

Codec = Literal["json", "proto"]
_M = TypeVar("_M", bound=Message)
_DEPTH: Final = 32


class Shape(NamedTuple):
    """What a content type says: the codec, and whether messages are in envelopes."""

    codec: Codec
    streams: bool

    @property
    def content_type(self) -> str:
        """The content type of the answer."""
        return f"application/connect+{self.codec}" if self.streams else f"application/{self.codec}"


_SHAPES: Final = {
    "application/json": Shape("json", streams=False),
    "application/proto": Shape("proto", streams=False),
    "application/connect+json": Shape("json", streams=True),
    "application/connect+proto": Shape("proto", streams=True),
}


def shape_of(content_type: str, *, streams: bool) -> Shape:
    """Read the content type of a call.

    Raises:
        ConnectError: Connect has no such type, or it is not that of such a call.
    """
    found = _SHAPES.get(content_type.partition(";")[0].strip().lower())
    if found is None or found.streams != streams:
        wanted = ", ".join(name for name, one in _SHAPES.items() if one.streams == streams)
        raise ConnectError("unknown", f"content type {content_type!r} is none of {wanted}")
    return found


def encoded(codec: Codec, message: Message) -> bytes:
    """Write a message."""
    if codec == "proto":
        return message.SerializeToString()
    return json.dumps(json_format.MessageToDict(message), separators=(",", ":")).encode()


def decoded(codec: Codec, kind: type[_M], data: bytes) -> _M:
    """Read a message.

    Raises:
        ConnectError: it is malformed, or has a field that the message has not, which would be ignored.
    """
    message = kind()
    try:
        if codec == "proto":
            message.ParseFromString(data)
        else:
            json_format.Parse(data.decode(), message, max_recursion_depth=_DEPTH)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectError("invalid_argument", f"{kind.DESCRIPTOR.name}: {error}") from error
    if codec == "proto":
        _refuse_unknown(message, kind.DESCRIPTOR.name)
    return message


def _refuse_unknown(message: Message, where: str) -> None:
    unknown = unknown_fields.UnknownFieldSet(message)
    if len(unknown):
        numbers = ", ".join(str(unknown[at].field_number) for at in range(len(unknown)))
        raise ConnectError("invalid_argument", f"{where} has no field of the number {numbers}")
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            _refuse_unknown(one, f"{where}.{field.name}")
