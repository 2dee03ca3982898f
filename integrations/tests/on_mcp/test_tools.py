"""What each tool does, as a client sees it."""

from __future__ import annotations

import base64
import json

import pytest

from on_mcp.serving import IMAGE, Calls, created, sandboxed, served
from rollbox import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A picture of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
READS = {"list_sandboxes", "list_processes", "read_output", "read_file", "list_files"}
DESTROYS = {"delete_sandbox", "run_command", "start_process", "stop_process", "run_code", "write_file", "request_port"}


async def test_the_tools_say_what_they_take_return_and_may_do() -> None:
    async with served("--egress", "packages", "--egress", "offline", "--max-ttl", "600") as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert client.server_info.name == "rollbox"
    assert set(tools) == {"create_sandbox", *READS, *DESTROYS}
    for one in tools.values():
        assert one.input_schema["additionalProperties"] is False
        assert one.output_schema is not None
        assert one.description
        assert one.annotations is not None
        told = (one.annotations.read_only_hint, one.annotations.destructive_hint)
        assert told == (one.name in READS, one.name in DESTROYS)
    create = tools["create_sandbox"].input_schema["properties"]
    assert create["egress"]["enum"] == ["", "packages", "offline"]
    assert (create["ttl"]["maximum"], create["ttl"]["default"], IMAGE in create["image"]["description"]) == (
        600,
        600,
        True,
    )
    assert tools["run_command"].input_schema["properties"]["timeout"]["maximum"] == 3600


async def test_sandboxes_are_made_listed_and_deleted(platform: Client) -> None:
    async with served() as client:
        call = await created(client, cwd="/tmp", env={"SEED": "7"}, user="1000", ttl=120)
        assert (await call("run_command", command="pwd; id -u; echo $SEED"))["stdout"] == "/tmp\n1000\n7\n"
        other = await created(client)
        listed = (await client.call_tool("list_sandboxes")).structured_content
        assert [one["sandbox_id"] for one in listed["sandboxes"]] == [call.sandbox_id, other.sandbox_id]
        assert {(one["state"], one["egress"]) for one in listed["sandboxes"]} == {("running", "offline")}
        await call("delete_sandbox")
        assert (await platform.get(call.sandbox_id)).end is not None
        assert (await call.fault("run_command", command="true"))[:2] == ("sandbox_not_found", "caller")


async def test_a_command_is_a_result_whatever_its_end(call: Calls) -> None:
    result = await call.tried("run_command", command="cat; echo err >&2; exit 3", stdin="in")
    done = result.structured_content
    assert (done["end"], done["exit_code"], done["stdout"], done["stderr"]) == ("exited", 3, "in", "err\n")
    assert json.loads(getattr(result.content[0], "text", "")) == done
    late = await call("run_command", command="echo so far; sleep 311", timeout=3)
    assert (late["end"], late["exit_code"], late["stdout"]) == ("deadline", None, "so far\n")
    assert (await call("run_command", command="pgrep -f 'sleep [3]11'"))["exit_code"] == 1
    killed = await call("run_command", command="kill -TERM $$")
    assert (killed["end"], killed["signal"]) == ("signalled", 15)


async def test_of_a_long_output_a_part_is_shown_and_the_rest_can_be_read(call: Calls) -> None:
    done = await call("run_command", command="seq 100000; printf 'é%.0s' $(seq 200) >&2", max_output_bytes=256)
    assert (done["stdout_truncated"], done["stdout_bytes"], done["stderr_bytes"]) == (True, 588895, 400)
    assert done["stdout"].startswith("1\n2\n")
    assert done["stdout"].endswith("\n100000\n")
    assert f"read_output with output_id {done['output_id']}" in done["stdout"]
    text, offset = "", 0
    while offset < 588895:
        piece = await call("read_output", output_id=done["output_id"], offset=offset, max_bytes=128 * 1024)
        text, offset = text + piece["text"], piece["next_offset"]
    assert text == "".join(f"{number}\n" for number in range(1, 100001))
    first = await call("read_output", output_id=done["output_id"], stream="stderr", max_bytes=257)
    assert (first["text"], first["next_offset"], first["total_bytes"]) == ("é" * 128, 256, 400)
    assert (await call.fault("read_output", output_id="none"))[0] == "exec_not_found"


async def test_what_a_command_wrote_over_what_is_kept_is_told(call: Calls) -> None:
    done = await call("run_command", command="head -c 6000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert (done["stdout"][:4], done["stdout"][-5:], done["stdout_bytes"]) == ("[...", "\nend\n", 6000005)
    piece = await call("read_output", output_id=done["output_id"])
    assert piece["offset"] > 0
    assert piece["text"].startswith("x")


async def test_a_process_goes_on_is_read_asked_and_stopped(call: Calls) -> None:
    server = "echo up; mkdir -p /tmp/w; cd /tmp/w; echo page > a; exec python3 -um http.server 8000"
    process = await call("start_process", command=server)
    first = await call("read_output", output_id=process["process_id"], wait=30)
    assert (first["text"][:3], first["running"]) == ("up\n", True)
    page = await call("request_port", port=8000, path="/a?b=c", headers={"X-A": "b"}, wait=60)
    assert (page["status"], page["body"], page["encoding"]) == (200, "page\n", "utf-8")
    assert (await call("request_port", port=8000, path="/none"))["status"] == 404
    log = await call("read_output", output_id=process["process_id"], stream="stderr", wait=30)
    assert "GET /a?b=c" in log["text"]
    listed = await call("list_processes")
    assert (listed["processes"][0]["command"], listed["processes"][0]["running"]) == (server, True)
    await call("stop_process", process_id=process["process_id"])
    ended = await call("read_output", output_id=process["process_id"], offset=10**6)
    assert (ended["running"], ended["end"]) == (False, "cancelled")


@pytest.mark.parametrize("path", ["/../x", "/a/%2e%2E/b", "/..", "/a/./b", "/a%2f..%2fb", "/a#b"])
async def test_a_request_cannot_leave_its_port(call: Calls, path: str) -> None:
    assert "leads up" in (await call.fault("request_port", port=8000, path=path, wait=1))[3]


async def test_a_request_has_no_header_of_the_platforms(call: Calls) -> None:
    for name in ("X-Rollbox-Token", "host", "Content-Length"):
        assert name.lower() in (await call.fault("request_port", port=8000, headers={name: "1"}))[3]
    assert "HTTP can carry" in (await call.fault("request_port", port=8000, headers={"a": "b\r\nc: d"}))[3]
    assert (await call.fault("request_port", port=8009, wait=1))[:2] == ("port_unreachable", "workload")


async def test_cells_keep_their_variables(call: Calls) -> None:
    assert (await call("run_code", code="x = 41\nprint('hi')"))["stdout"] == "hi\n"
    assert (await call("run_code", code="x + 1"))["value"] == "42"
    raised = await call("run_code", code="1 / 0")
    assert (raised["end"], raised["error"]["name"]) == ("finished", "ZeroDivisionError")
    late = await call("run_code", code="import time\ntime.sleep(300)", timeout=2)
    assert (late["end"], late["variables_lost"]) == ("deadline", False)
    assert (await call("run_code", code="x"))["value"] == "41"
    assert (await call("run_code", code="x", restart=True))["error"]["name"] == "NameError"


async def test_a_cell_shows_pictures_and_the_rest_of_its_output_can_be_read(call: Calls) -> None:
    code = f"class Dot:\n    def _repr_png_(self): return {PNG!r}\nDot()"
    shown = await call.tried("run_code", code=code)
    assert shown.structured_content["pictures"] == 1
    assert [one.type for one in shown.content] == ["text", "image"]
    assert base64.b64decode(getattr(shown.content[1], "data", "")) == PNG
    long = await call("run_code", code="print('y' * 5000)", max_output_bytes=256)
    assert (long["stdout_truncated"], long["stdout_bytes"]) == (True, 5001)
    rest = await call("read_output", output_id=long["output_id"], offset=4990)
    assert (rest["text"], rest["next_offset"]) == ("y" * 10 + "\n", 5001)


async def test_files_are_written_read_and_listed(call: Calls) -> None:
    written = await call("write_file", path="/tmp/d/a.sh", content="é" * 200, mode="755")
    assert written["size_bytes"] == 400
    first = await call("read_file", path="/tmp/d/a.sh", max_bytes=257)
    assert (first["content"], first["next_offset"], first["truncated"]) == ("é" * 128, 256, True)
    middle = await call("read_file", path="/tmp/d/a.sh", offset=301)
    assert (middle["content"], middle["offset"], middle["truncated"]) == ("é" * 49, 302, False)
    raw = base64.b64encode(b"\0\xff\xfe").decode()
    await call("write_file", path="/tmp/d/raw", content=raw, encoding="base64")
    assert (await call("read_file", path="/tmp/d/raw"))["content"] == raw
    await call("write_file", path="/tmp/d/dot.png", content=base64.b64encode(PNG).decode(), encoding="base64")
    picture = await call.tried("read_file", path="/tmp/d/dot.png")
    assert (picture.structured_content["encoding"], picture.content[1].type) == ("picture", "image")
    entries = (await call("list_files", path="/tmp/d"))["entries"]
    assert [(one["path"], one["mode"]) for one in entries if one["path"].endswith(".sh")] == [("/tmp/d/a.sh", "0755")]
    assert (await call("list_files", path="/usr", recursive=True, limit=5))["truncated"]
    assert (await call("read_file", path="/proc/version"))["content"].startswith("Linux")
    assert "no file" in (await call.fault("read_file", path="/dev/zero"))[3]


async def test_a_port_is_published_only_where_the_server_may(platform: Client) -> None:
    async with sandboxed("--public-ports") as call:
        opened = await call("publish_port", port=8000)
        assert (opened["public"], call.sandbox_id in opened["url"]) == (True, True)
        assert (await call("publish_port", port=8000, public=False))["public"] is False
