"""What clients ask for, read from JSON; what is not sound is refused as SandboxFusion's own server does. Pure."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from rollbox_bridges.fusion.languages import RECIPES
from rollbox_bridges.fusion.words import Refusal

_MOST_S: Final = 86_400.0
_MOST_FILES: Final = 1_000
_MOST_SHOWN: Final = 100
_RUN: Final = {"compile_timeout", "run_timeout", "memory_limit_MB", "code", "stdin", "language"}
_CELLS: Final = {"cells", "cell_timeout", "total_timeout", "memory_limit_MB", "kernel"}
_FILES: Final = {"files", "fetch_files"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every request has.

    Attributes:
        language: of its program.
        files: contents by path; a relative one is below the program's directory.
        fetch: paths whose files are sent back.
        memory_bytes: the most of its sandbox; None: no limit is asked for.
    """

    language: str
    files: Mapping[str, bytes]
    fetch: tuple[str, ...]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Asked):
    """A program, its input, and the seconds that it is built and run within."""

    code: str
    stdin: str
    build_s: float
    run_s: float

    @property
    def longest_s(self) -> float:
        """Seconds that it may take."""
        return self.build_s + self.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook(Asked):
    """Cells, which share their variables; cell_s 0: of one cell the time is that of all."""

    cells: tuple[str, ...]
    cell_s: float
    total_s: float

    @property
    def longest_s(self) -> float:
        """Seconds that it may take."""
        return self.total_s


def program_of(data: bytes) -> Program:
    """Read the body of `run_code`.

    Raises:
        Refusal: it is not sound.
    """
    body = _object(data, _RUN | _FILES)
    language = body.get("language")
    if not isinstance(language, str) or language not in RECIPES:
        raise unknown_language(language, RECIPES)
    return Program(
        language=language,
        code=_text(body, "code"),
        stdin="" if body.get("stdin") is None else _text(body, "stdin"),
        build_s=_seconds(body, "compile_timeout", 10, above=0),
        run_s=_seconds(body, "run_timeout", 10, above=0),
        **_common(body),
    )


def notebook_of(data: bytes) -> Notebook:
    """Read the body of `run_jupyter`.

    Raises:
        Refusal: it is not sound.
    """
    body = _object(data, _CELLS | _FILES)
    if body.get("kernel", "python3") != "python3":
        _refuse("literal_error", "kernel", "Input should be 'python3'", body["kernel"])
    cells = body.get("cells")
    if not isinstance(cells, list):
        _refuse("missing" if cells is None else "list_type", "cells", "Input should be a valid list", cells)
    for at, cell in enumerate(cells):
        _checked_text(cell, "cells", at)
    return Notebook(
        language="python",
        cells=tuple(cells),
        cell_s=_seconds(body, "cell_timeout", 0),
        total_s=_seconds(body, "total_timeout", 45, above=0),
        **_common(body),
    )


def unknown_language(language: Any, known: Collection[str]) -> Refusal:  # noqa: ANN401 - JSON
    """The refusal of a language that there is not, in the protocol's words."""
    *first, last = [repr(name) for name in known] or ["nothing"]
    expected = f"{', '.join(first)} or {last}" if first else last
    return _invalid("literal_error", ("language",), f"Input should be {expected}", language, expected=expected)


def _object(data: bytes, known: Collection[str]) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _invalid("json_invalid", (), f"JSON decode error: {error}", None) from error
    if not isinstance(body, dict):
        raise _invalid("model_attributes_type", (), "Input should be a valid dictionary", None)
    for name in body:
        if name not in known:
            _refuse("extra_forbidden", name[:100], "Extra inputs are not permitted: it would be ignored", None)
    return body


def _common(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"files": _files(body), "fetch": _fetched(body), "memory_bytes": _memory(body)}


def _files(body: Mapping[str, Any]) -> dict[str, bytes]:
    files = body.get("files", {})
    if not isinstance(files, dict) or len(files) > _MOST_FILES:
        _refuse("dict_type", "files", f"Input should be a valid dictionary of at most {_MOST_FILES} files", None)
    # A file without content is no file: so the protocol has it.
    return {_path("files", name): _bytes(name, text) for name, text in files.items() if text is not None}


def _bytes(name: str, text: Any) -> bytes:  # noqa: ANN401 - JSON
    try:
        return b64decode(_checked_text(text, "files", name), validate=True)
    except (NotBase64, ValueError) as error:
        raise _invalid("value_error", ("files", name), f"Value error, it is no base64: {error}", None) from error


def _fetched(body: Mapping[str, Any]) -> tuple[str, ...]:
    names = body.get("fetch_files", [])
    if not isinstance(names, list) or len(names) > _MOST_FILES:
        _refuse("list_type", "fetch_files", f"Input should be a valid list of at most {_MOST_FILES} paths", None)
    return tuple(_path("fetch_files", name) for name in names)


def _path(field: str, name: Any) -> str:  # noqa: ANN401 - JSON
    if not _checked_text(name, field) or name.endswith("/") or "\0" in name:
        _refuse("value_error", field, "Value error, it is not the path of a file", name)
    return str(name)


def _memory(body: Mapping[str, Any]) -> int | None:
    limit = body.get("memory_limit_MB", -1)
    if isinstance(limit, bool) or not isinstance(limit, int):
        _refuse("int_type", "memory_limit_MB", "Input should be a valid integer", limit)
    return limit * 2**20 if limit > 0 else None


def _seconds(body: Mapping[str, Any], name: str, default: float, above: float = -1) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("float_type", name, "Input should be a valid number", value)
    if not above < value <= _MOST_S or value < 0:
        least = "greater than 0" if above == 0 else "at least 0"
        _refuse("value_error", name, f"Value error, it should be {least} and at most {_MOST_S:g}", value)
    return float(value)


def _text(body: Mapping[str, Any], name: str) -> str:
    if name not in body:
        _refuse("missing", name, "Field required", None)
    return _checked_text(body[name], name)


def _checked_text(value: Any, *place: str | int) -> str:  # noqa: ANN401 - JSON
    if not isinstance(value, str):
        raise _invalid("string_type", place, "Input should be a valid string", None)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _invalid("string_unicode", place, "Input should be text, and has half a character", None) from error
    return value


def _refuse(kind: str, field: str, message: str, value: Any) -> NoReturn:  # noqa: ANN401 - JSON
    raise _invalid(kind, (field,), message, value)


def _invalid(kind: str, place: tuple[str | int, ...], message: str, value: Any, **context: str) -> Refusal:  # noqa: ANN401
    # What was sent comes back only where it is short.
    short = value if isinstance(value, str | int) and len(str(value)) <= _MOST_SHOWN else None
    told = {"type": kind, "loc": ["body", *place], "msg": message, "input": short}
    return Refusal(422, [{**told, "ctx": context} if context else told])
