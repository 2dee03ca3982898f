"""deepagents' contract of a backend: commands and files, with and without `await`."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from deepagents.backends.protocol import FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from on_deepagents.conftest import IMAGE
from rollbox.sync import Client, Sandbox
from rollbox_integrations.deepagents import RollboxSandbox

# As that of busybox.
GREP_WITHOUT_Z = '#!/bin/sh\ncase "$1" in *Z*) echo "unrecognized option: Z" >&2; exit 1;; esac\nexec /bin/grep "$@"\n'
TEXTS = {
    "plain": b"one\ntwo\nthree\n",
    "no-end": b"one\ntwo",
    "windows": b"one\r\ntwo\r\nthree\r\n",
    "blank": b"\n\n\n",
    "unicode": "eins\nz\u00e4hlen\u2028zwei\x0bdrei\n\u4e16\u754c".encode(),
    "latin": b"gr\xfc\xdfe\n",
    "empty": b"",
    "long-line": b"x" * 600_000 + b"\nlast\n",
    "many-lines": b"".join(b"%06d line\n" % number for number in range(60_000)),
    "large": b"".join(b"%06d line\n" % number for number in range(250_000)),
    "picture.png": bytes(range(256)),
}
PAGES = [(0, 2000), (1, 1), (2, 10), (-3, 2), (0, 0), (5000, 3)]


def test_a_command_has_all_its_output_and_its_code(box: RollboxSandbox) -> None:
    told = box.execute("echo out; echo err >&2; [[ a == a ]] && exit 3")
    assert (told.output, told.exit_code, told.truncated) == ("out\nerr\n", 3, False)
    assert box.execute("no-such-program").exit_code == 127
    assert (box.execute("kill -9 $$").exit_code, box.execute("exit 4", timeout=0).exit_code) == (137, 4)
    assert box.execute(f"true {'x' * 3_000_000}").exit_code == 126
    with pytest.raises(ValueError, match="timeout"):
        box.execute("true", timeout=-1)
    assert box.id == box.sandbox.id


def test_of_a_long_output_the_end_is_kept(box: RollboxSandbox) -> None:
    told = box.execute("head -c 20000000 /dev/zero | tr '\\0' x; echo the end")
    assert (told.truncated, len(told.output), told.output[-8:]) == (True, 16 << 20, "the end\n")
    assert box.execute("printf '\\377\\376'").output == "\ufffd\ufffd"


def test_a_deadline_is_a_result_with_what_was_written(box: RollboxSandbox) -> None:
    late = box.execute("echo begun; sleep 351", timeout=5)
    assert (late.exit_code, late.output) == (124, "begun\nrollbox: it passed its timeout and was killed\n")
    assert box.execute("pgrep -fx 'sleep 351'").exit_code == 1


async def test_a_cancelled_command_is_killed(box: RollboxSandbox) -> None:
    running = asyncio.create_task(box.aexecute("sleep 352"))
    while (await box.aexecute("pgrep -fx 'sleep 352'")).exit_code:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await box.aexecute("pgrep -fx 'sleep 352'")).exit_code:
        pass


def test_files_go_both_ways_and_each_has_its_own_error(box: RollboxSandbox) -> None:
    files = [(f"/made/{number}/a", bytes([number])) for number in range(30)]
    up = box.upload_files([*files, ("relative", b""), ("/etc", b""), ("/etc/hostname/below", b"")])
    assert up[:30] == [FileUploadResponse(path=path) for path, _ in files]
    assert [one.error for one in up[30:]] == ["invalid_path", "is_directory", "invalid_path"]
    down = box.download_files([path for path, _ in files] + ["relative", "/etc", "/no/such"])
    assert down[:30] == [FileDownloadResponse(path=path, content=content) for path, content in files]
    assert [one.error for one in down[30:]] == ["invalid_path", "is_directory", "file_not_found"]


async def test_the_same_holds_with_await(box: RollboxSandbox) -> None:
    assert await box.aupload_files([("/made/a", b"1")]) == [FileUploadResponse(path="/made/a")]
    assert await box.adownload_files(["/made/a"]) == [FileDownloadResponse(path="/made/a", content=b"1")]
    assert (await box.awrite("/made/b", "1 2")).error is None
    assert (await box.aedit("/made/b", "2", "3")).occurrences == 1
    assert (await box.aread("/made/b")).file_data == {"content": "1 3", "encoding": "utf-8"}
    found = await box.agrep("3", "/made")
    assert found.matches == [{"path": "/made/b", "line": 1, "text": "1 3"}]
    assert [one["path"] for one in (await box.als("/made")).entries or []] == ["/made/a", "/made/b"]
    assert [one["path"] for one in (await box.aglob("*", "/made")).matches or []] == ["/made/a", "/made/b"]
    assert (await box.adelete("/made")).path == "/made"
    assert (await box.adelete("/made")).error == "Error: '/made': file_not_found"


def test_a_user_has_the_rights_of_a_user(client: Client) -> None:
    with RollboxSandbox(IMAGE, user="1000", egress="offline") as box:
        assert box.upload_files([("/root/a", b"")])[0].error == "permission_denied"
        assert (box.write("/root/a", "").error, box.delete("/etc/hostname").error) == (
            "Cannot write '/root/a': permission_denied",
            "Error: '/etc/hostname': permission_denied",
        )
        assert box.ls("/root").error == "Path '/root': permission_denied"
        assert "permission_denied" in str(box.edit("/etc/shadow", "root", "toor").error)


def test_a_write_is_over_the_old_file_and_a_search_finds_whole_paths(box: RollboxSandbox) -> None:
    """What deepagents says now, where LangChain's tests are older."""
    box.write("/made/deep/a.py", "first")
    assert box.write("/made/deep/a.py", "second").path == "/made/deep/a.py"
    assert box.execute("cat /made/deep/a.py").output == "second"
    assert [one["path"] for one in box.glob("*.py", "/made").matches or []] == ["/made/deep/a.py"]


def test_a_page_is_that_of_deepagents_own_program(box: RollboxSandbox) -> None:
    for name, text in TEXTS.items():
        path = f"/made/{name}"
        box.upload_files([(path, text)])
        for offset, limit in PAGES:
            # With one difference: the lines of a larger file are counted here too, since it has come as a whole.
            own, theirs = box.read(path, offset, limit), BaseSandbox.read(box, path, offset, limit)
            theirs.total_lines = own.total_lines if theirs.total_lines is None else theirs.total_lines
            assert own == theirs, (name, offset, limit)


def test_what_cannot_be_read_is_told(box: RollboxSandbox) -> None:
    assert box.read("/no/such").error == "File '/no/such': file_not_found"
    assert box.read("/etc").error == "File '/etc': is_directory"
    assert box.ls("/etc/hostname").error == "Path '/etc/hostname': invalid_path"


def test_an_edit_is_that_of_deepagents_own_program(box: RollboxSandbox) -> None:
    names, olds = ("plain", "windows", "no-end"), ("one", "o", "two\nthree", "two\r\nthree", "four", "one\ntwo\n")
    for name, old, new, every in itertools.product(names, olds, ("1", ""), (False, True)):
        box.upload_files([("/made/own", TEXTS[name]), ("/made/theirs", TEXTS[name])])
        own = box.edit("/made/own", old, new, every)
        theirs = BaseSandbox.edit(box, "/made/theirs", old, new, every)
        assert (own.occurrences, own.error is None) == (theirs.occurrences, theirs.error is None), (name, old, every)
        assert box.execute("cmp /made/own /made/theirs").output == "", (name, old, every)


async def test_edits_that_come_at_once_are_all_made(box: RollboxSandbox) -> None:
    words = [f"<{number}>" for number in range(12)]
    await box.awrite("/made/a", " ".join(words))
    made = await asyncio.gather(*(box.aedit("/made/a", word, word.upper() + "!") for word in words))
    assert {one.error for one in made} == {None}
    assert box.execute("cat /made/a").output == " ".join(f"{word}!" for word in words)


def test_an_image_without_python_has_files_and_says_what_it_lacks(box: RollboxSandbox) -> None:
    box.execute("rm -f $(which -a python3 python)")
    box.write("/made/a", "text")
    assert [one["path"] for one in box.ls("/made").entries or []] == ["/made/a"]
    assert box.edit("/made/a", "text", "more").occurrences == 1
    assert (box.read("/made/a").file_data or {}).get("content") == "more"
    assert box.grep("more", "/made").matches
    assert "python3" in str(box.glob("*", "/made").error)
    assert "exit code 127" in str(box.grep("more", "/made", glob="deep/*").error)


def test_a_grep_that_is_of_no_use_is_told(box: RollboxSandbox) -> None:
    box.write("/made/a", "text")
    assert box.grep("nothing", "/made").matches == []
    box._can_grep = False
    box.write("/usr/local/bin/grep", GREP_WITHOUT_Z)
    box.execute("chmod +x /usr/local/bin/grep")
    assert box.grep("text", "/made").error == "The image has neither GNU grep nor ripgrep: use execute"


def test_a_sandbox_that_was_there_before_stays(client: Client) -> None:
    with Sandbox.create(IMAGE, memory="256Mi", egress="offline") as there:
        with RollboxSandbox(sandbox=there) as box:
            assert box.execute("echo here").output == "here\n"
        assert there.exec("true").ok
        with pytest.raises(TypeError, match="no options"):
            RollboxSandbox(sandbox=there, memory="1Gi")
