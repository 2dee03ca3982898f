"""Messages of protocol buffers from a table in Python, in place of generated code. Pure.

A table has a message a line: `Name: 1 field type, 2 other type?, 3 many Type*, 4 texts map`. `?` marks a field whose
absence differs from its zero, `*` a list, `map` a map from string to string. A capital letter begins the name of a
message or of an enumeration of the same table, which is written `enum Name: 0 ZERO, 1 ONE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

_SCALARS: Final = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "sint32": descriptor_pb2.FieldDescriptorProto.TYPE_SINT32,
}
_TIMESTAMP: Final = "Timestamp"


def messages(package: str, table: str) -> Mapping[str, type[Message]]:
    """Make the message classes of a table, by name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    lines = [" ".join(line.split()) for line in table.replace(",\n", ", ").splitlines() if line.strip()]
    enums = {line.split(":")[0].removeprefix("enum ") for line in lines if line.startswith("enum ")}
    for line in lines:
        name, _, body = line.partition(":")
        parts = [part.split() for part in body.split(",") if part.strip()]
        if line.startswith("enum "):
            _enum(file, name.removeprefix("enum "), parts)
        else:
            _message(file, name, parts, enums)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        one.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{one.name}"))
        for one in file.message_type
    }


def _enum(file: descriptor_pb2.FileDescriptorProto, name: str, parts: list[list[str]]) -> None:
    made = file.enum_type.add(name=name)
    for number, value in parts:
        made.value.add(name=value, number=int(number))


def _message(file: descriptor_pb2.FileDescriptorProto, name: str, parts: list[list[str]], enums: set[str]) -> None:
    made = file.message_type.add(name=name)
    for number, field_name, kind in parts:
        field = made.field.add(name=field_name, number=int(number))
        field.label = field.LABEL_REPEATED if kind.endswith(("*", "map")) else field.LABEL_OPTIONAL
        if kind == "map":
            _map(made, field, f"{file.package}.{name}")
        else:
            _typed(file.package, field, kind.rstrip("?*"), enums)
        if kind.endswith("?"):
            # How proto3 says that the absence of a scalar is seen.
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field_name}")


def _typed(package: str, field: descriptor_pb2.FieldDescriptorProto, kind: str, enums: set[str]) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = field.TYPE_ENUM if kind in enums else field.TYPE_MESSAGE
    field.type_name = ".google.protobuf.Timestamp" if kind == _TIMESTAMP else f".{package}.{kind}"


def _map(owner: descriptor_pb2.DescriptorProto, field: descriptor_pb2.FieldDescriptorProto, full_name: str) -> None:
    entry = owner.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        part = entry.field.add(name=name, number=number, type=_SCALARS["string"])
        part.label = part.LABEL_OPTIONAL
    field.type, field.type_name = field.TYPE_MESSAGE, f".{full_name}.{entry.name}"
