"""What SandboxFusion's bridge reads and says: requests, recipes of languages, results and whose fault an error is."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox import Cell, CellError, CellResult, ExecResult, errors
from rollbox_bridges.fusion import __main__ as program
from rollbox_bridges.fusion import languages, requests, words
from rollbox_bridges.fusion.settings import Settings
from rollbox_bridges.program import SettingError

CODES = tomllib.loads((Path(__file__).parents[3] / "contract/errors.toml").read_text())["code"]
SOUND = {"code": "print(1)", "language": "python"}
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("code", "language", "stdin", "files", "fetch_files", "run_timeout", "compile_timeout", "memory_limit_MB")


def program_of(**body: Any) -> requests.Program:
    return requests.program_of(json.dumps({**SOUND, **body}).encode())


def notebook_of(**body: Any) -> requests.Notebook:
    return requests.notebook_of(json.dumps({"cells": ["1"], **body}).encode())


def result(end: Any = "exited", code: int | None = 0, **more: Any) -> ExecResult:
    return ExecResult(exec_id="e", sandbox_id="sb-1", end=end, exit_code=code, run_ms=1500.0, **more)


def test_a_request_has_the_protocols_defaults() -> None:
    asked = program_of()
    assert (asked.build_s, asked.run_s, asked.stdin, asked.memory_bytes) == (10, 10, "", None)
    assert program_of(memory_limit_MB=1024).memory_bytes == 2**30
    assert program_of(memory_limit_MB=-1).memory_bytes is None
    assert (notebook_of().total_s, notebook_of().cell_s) == (45, 0)


def test_files_are_base64_and_one_without_content_is_none() -> None:
    assert program_of(files={"a/b": "aGVsbG8=", "c": None}).files == {"a/b": b"hello"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("later", 1),
        ("language", "cobol"),
        ("language", ["python"]),
        ("language", None),
        ("code", 7),
        ("code", "\ud800"),
        ("stdin", ["x"]),
        ("run_timeout", 0),
        ("run_timeout", -1),
        ("run_timeout", "10"),
        ("run_timeout", 1e9),
        ("run_timeout", float("nan")),
        ("compile_timeout", True),
        ("memory_limit_MB", 1.5),
        ("files", []),
        ("files", {"a": "!"}),
        ("files", {"a": 1}),
        ("files", {"": "aGk="}),
        ("files", {"a/": "aGk="}),
        ("files", {"a\0b": "aGk="}),
        ("fetch_files", "a"),
        ("fetch_files", [1]),
    ],
)
def test_what_is_not_sound_is_refused_with_its_place(field: str, value: Any) -> None:
    with pytest.raises(words.Refusal) as refused:
        program_of(**{field: value})
    assert refused.value.status == 422
    assert refused.value.detail[0]["loc"][:2] == ["body", field]
    json.dumps(refused.value.body(), allow_nan=False)


@pytest.mark.parametrize(
    "body", [{"cells": None}, {"cells": "x"}, {"cells": [1]}, {"kernel": "ir"}, {"total_timeout": 0}, {"code": "x"}]
)
def test_a_notebook_that_is_not_sound_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(words.Refusal, match=r"\S"):
        notebook_of(**body)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"code": "x"}'])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(words.Refusal) as refused:
        requests.program_of(data)
    assert refused.value.status == 422


@given(some.dictionaries(some.sampled_from(FIELDS), JSON, max_size=4), some.booleans())
def test_no_body_is_more_than_refused(body: dict[str, Any], sound: bool) -> None:
    with contextlib.suppress(words.Refusal):
        asked = requests.program_of(json.dumps({**SOUND, **body} if sound else body).encode())
        assert all(isinstance(one, bytes) for one in asked.files.values())


def test_an_unknown_language_is_refused_in_the_protocols_words() -> None:
    told = requests.unknown_language("cpp", ["python", "bash"]).detail[0]
    assert (told["type"], told["msg"]) == ("literal_error", "Input should be 'python' or 'bash'")
    assert told["ctx"] == {"expected": "'python' or 'bash'"}
    assert requests.unknown_language("cpp", []).status == 422


def test_each_recipe_runs_what_it_has_written_or_built() -> None:
    for language in languages.RECIPES:
        recipe = languages.recipe_of(language, [])
        mentioned = " ".join((*recipe.build, *recipe.run))
        assert recipe.file in mentioned or language in {"java"}
        assert not recipe.run[0].startswith("./") or recipe.run[0][2:] in " ".join(recipe.build)


def test_archives_of_java_are_on_its_class_path() -> None:
    assert "-cp" not in languages.recipe_of("java", ["data.txt"]).run
    assert languages.recipe_of("java", ["lib/a.jar"]).build == ("javac", "-cp", ".:lib/a.jar", "Main.java")


def test_a_program_of_php_begins_with_its_tag_once() -> None:
    php = languages.RECIPES["php"]
    assert [php.text("echo 1;"), php.text(" <?php echo 1;")] == ["<?php\necho 1;", " <?php echo 1;"]


@pytest.mark.parametrize(
    ("ended", "status", "code"),
    [
        (result(), "Finished", 0),
        (result(code=3), "Finished", 3),
        (result("signalled", None, signal=11), "Finished", -11),
        (result("oom_killed", None), "Finished", -9),
        (result("deadline", None), "TimeLimitExceeded", None),
    ],
)
def test_an_end_is_a_status_and_a_code(ended: ExecResult, status: str, code: int | None) -> None:
    told = words.ran(ended)
    assert (told["status"], told["return_code"], told["execution_time"]) == (status, code, 1.5)
    success = words.answer(None, told, {})["status"]
    assert success == ("Success" if code == 0 else "Failed")


def test_a_program_that_was_not_built_has_failed_without_a_run() -> None:
    told = words.answer(words.ran(result(code=1)), None, {"a": b"x"}, sandbox_id="sb-1")
    assert (told["status"], told["run_result"], told["files"]) == ("Failed", None, {"a": "eA=="})


def test_what_was_cut_or_killed_is_told() -> None:
    cut = result(stdout_bytes=b"ab", stdout_total_bytes=5, stdout_truncated=True)
    assert words.notes([cut]) == ["stdout was cut to its first 2 of 5 bytes"]
    killed = "the program was killed for the memory that it took"
    assert words.notes([result("oom_killed", None)]) == [killed]
    ended = result("oom_killed", None, stdout_truncated=True)
    assert words.notes([ended]) == [killed, "stdout was lost with the sandbox"]
    assert words.notes([result()]) == []


@pytest.mark.parametrize("code", CODES)
def test_only_what_is_no_fault_of_the_program_is_a_sandbox_error(code: str) -> None:
    error = errors.BY_CODE[code]("it is so")
    refusal = words.refusal_of(error)
    if error.fault == "capacity":
        assert refusal is not None
        assert (refusal.status, refusal.headers) == (504, {"Retry-After": "1"})
    if error.fault in {"platform", "workload"}:
        assert refusal is None
    told = words.failure(str(refusal), notebook=True) if refusal else words.failure(str(error), notebook=False)
    assert told["status"] == "SandboxError"


def test_a_cell_shows_what_jupyter_would() -> None:
    forms = {"text/plain": b"1", "image/png": b"\x89", "application/json": b"[1]", "application/vnd.rollbox.x": b"1"}
    cell = Cell("finished", "c", CellError("E", "v", "one\ntwo"), (CellResult(forms, main=True),), stdout_bytes=b"\xff")
    told = words.cell_of(cell)
    assert told["display"] == [{"text/plain": "1", "image/png": "iQ==", "application/json": [1]}]
    assert told["error"] == [{"ename": "E", "evalue": "v", "traceback": ["one", "two"]}]
    assert told["stdout"] == "\ufffd"
    forged = Cell("finished", "c", None, (CellResult({"application/json": b"{"}),))
    assert words.cell_of(forged)["display"] == [{"application/json": "{"}]


def test_a_language_has_its_own_image_or_that_of_all() -> None:
    settings = Settings(image="all:1", images={"cpp": "gcc:14"})
    assert [settings.image_of(one) for one in ("cpp", "python")] == ["gcc:14", "all:1"]


@pytest.mark.parametrize(
    "options", [["--language", "cobol=x"], ["--language", "cpp"], ["--at-once", "0"], ["--warm", "-1"]]
)
def test_settings_that_are_not_sound_end_the_bridge_before_it_listens(options: list[str]) -> None:
    with pytest.raises(SettingError, match=r"cobol|NAME=VALUE|less than"):
        program.settings_of(program.parser().parse_args(options))
