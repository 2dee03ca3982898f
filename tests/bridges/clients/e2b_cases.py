"""What a user does with E2B's own SDK, a case a function. Run by its own Python: `e2b_cases.py sync|async`.

Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import e2b
from e2b import CommandExitException, SandboxQuery

STYLE = sys.argv[1]
Sandbox = e2b.AsyncSandbox if STYLE == "async" else e2b.Sandbox
BRIDGE = os.environ["E2B_API_URL"]
WITHIN_S = 300
# Of the sandbox that all cases share: a busy machine needs minutes for them.
LIVES_S = 3600


async def of(value):
    """The value of a call, of either style."""
    return await value if inspect.isawaitable(value) else value


async def made(**options):
    return await of(Sandbox.create(**{"timeout": 300, **options}))


async def until(look):
    """What a look says once that is true."""
    limit = time.monotonic() + WITHIN_S
    while not (seen := await look()) and time.monotonic() < limit:
        await asyncio.sleep(0.05)
    return seen


def fails(error):
    return [type(error).__name__, str(error)]


async def refused(call):
    """The class and the text of the error of a call."""
    try:
        await of(call())
    except Exception as error:  # what a user would see
        return fails(error)
    return ["nothing", ""]


async def info(sandbox):
    told = await of(sandbox.get_info())
    lives_s = round((told.end_at - told.started_at).total_seconds())
    return {
        "template": told.template_id,
        "metadata": told.metadata,
        "state": told.state if isinstance(told.state, str) else told.state.value,
        "lives": abs(lives_s - LIVES_S) <= 10,
        "same": told.sandbox_id == sandbox.sandbox_id,
        "cpu": told.cpu_count,
        "running": await of(sandbox.is_running()),
    }


async def pages(sandbox):
    mark = f"{os.getpid()}-{time.time_ns()}"
    others = [await made(metadata={"mark": mark}) for _ in range(3)]
    query = SandboxQuery(metadata={"mark": mark})
    listed = Sandbox.list(query=query, limit=2)
    sizes, ids = [], []
    while listed.has_next:
        page = await of(listed.next_items())
        sizes.append(len(page))
        ids += [one.sandbox_id for one in page]
    killed = [await of(one.kill()) for one in others]
    return {"sizes": sizes, "ids": sorted(ids) == sorted(one.sandbox_id for one in others), "killed": killed}


async def killed(sandbox):
    mine = await made()
    first, second = await of(mine.kill()), await of(Sandbox.kill(mine.sandbox_id))
    run = await refused(lambda: mine.commands.run("true"))
    read = await refused(lambda: mine.files.read("/etc/hostname"))
    connect = await refused(lambda: Sandbox.connect(mine.sandbox_id))
    return {
        "kills": [first, second],
        "running": await of(mine.is_running()),
        "run": run[0],
        "read": read[0],
        "connect": connect[0],
        "slime": "does not exist" in run[1] and "STOPPED state" in run[1],
    }


async def shortened(sandbox):
    mine = await made()
    await of(mine.set_timeout(1))

    async def over():
        return not await of(mine.is_running())

    return {"over": await until(over)}


async def extended(sandbox):
    mine = await made(timeout=60)
    await of(mine.set_timeout(1000))
    told = await of(mine.get_info())
    await of(mine.kill())
    return {"lives": 990 <= (told.end_at - told.started_at).total_seconds() <= 1010}


async def connected(sandbox):
    again = await of(Sandbox.connect(sandbox.sandbox_id))
    await of(sandbox.files.write("/tmp/shared", "x"))
    return {"read": await of(again.files.read("/tmp/shared"))}


async def by_metadata(sandbox):
    mine = await made(metadata={"rollbox.image": os.environ["IMAGE"], "run": "7"})
    result = await of(mine.commands.run("echo here"))
    await of(mine.kill())
    return {"stdout": result.stdout}


async def no_image(sandbox):
    # Where the registry of the others is, so that it is one that answers.
    none = os.environ["IMAGE"].rpartition("/")[0] + "/no-such-image:1"
    error = await refused(lambda: Sandbox.create(template=none, timeout=60))
    return {"error": error[0], "says": "does not exist" in error[1]}


async def wrong_key(sandbox):
    return {"error": (await refused(lambda: Sandbox.create(api_key="e2b_" + "0" * 40)))[0]}


async def other_id(sandbox):
    return {
        "connect": (await refused(lambda: Sandbox.connect("sb-not-there")))[0],
        "kill": await of(Sandbox.kill("sb-not-there")),
    }


async def not_supported(sandbox):
    """What the bridge says of what it has not, of all that this version asks for."""
    cls = e2b.AsyncTemplate if STYLE == "async" else e2b.Template
    serving = cls().from_image(os.environ["IMAGE"]).set_start_cmd("sleep 1", "true")
    calls = {
        "pause": sandbox.pause,
        "memory": sandbox.create_snapshot,
        "metrics": sandbox.get_metrics,
        "start": lambda: cls.build(serving, f"case-{STYLE}-{os.getpid()}-serving"),
        **({"fork": sandbox.fork} if hasattr(sandbox, "fork") else {}),
    }
    says = {name: "not supported" in (await refused(call))[1] for name, call in calls.items()}
    return {"says": says, "runs": await of(sandbox.is_running())}


async def snapshots(sandbox):
    """Of files alone, which only newer clients can ask for."""
    if "mode" not in inspect.signature(sandbox.create_snapshot).parameters:
        return {"says": "mode='filesystem'" in (await refused(sandbox.create_snapshot))[1]}
    await of(sandbox.files.write("/srv/kept", "kept"))
    made_ = await of(sandbox.create_snapshot(mode="filesystem"))
    again = await made(template=made_.snapshot_id)
    text = await of(again.files.read("/srv/kept"))
    await of(again.kill())
    removed = [await of(Sandbox.delete_snapshot(made_.snapshot_id)) for _ in range(2)]
    return {"text": text, "removed": removed}


async def templates(_):
    """A template from its steps, by its name, with another tag; and one that fails."""
    cls = e2b.AsyncTemplate if STYLE == "async" else e2b.Template
    name, said = f"case-{STYLE}-{os.getpid()}", []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "src").mkdir()
        Path(folder, "src/f").write_text("copied\n")
        Path(folder, "one").write_text("one\n")
        template = (
            cls(file_context_path=folder)
            .from_image(os.environ["IMAGE"])
            .set_envs({"V": 'a "b"'})
            .copy("src", "/app/src")
            .copy("one", "/app/one", user="nobody", mode=0o640)
            # Of the same content an image is built once, and what was built says nothing.
            .run_cmd(f'echo {name} says; echo "$V" > /tmp/ran')
            .run_cmd("id -un > /tmp/who", user="nobody")
            .set_workdir("/app")
            .set_user("user")
        )
        built = await of(cls.build(template, f"{name}:v1", on_build_logs=lambda one: said.append(one.message)))
    there = [await of(cls.exists(one)) for one in (f"{name}:v1", name)]
    mine = await made(template=f"{name}:v1")
    seen = await of(mine.commands.run("id -un; cat src/f /tmp/ran /tmp/who; stat -c '%U %a' one"))
    await of(mine.kill())
    await of(cls.assign_tags(f"{name}:v1", ["stable"]))
    tags = sorted(one.tag for one in await of(cls.get_tags(name)))
    failing = cls().from_image(os.environ["IMAGE"]).run_cmd("echo why; exit 7")
    failed_ = await refused(lambda: cls.build(failing, f"{name}-failing"))
    request = urllib.request.Request(f"{BRIDGE}/templates/{name}", method="DELETE")
    request.add_header("X-API-Key", os.environ["E2B_API_KEY"])

    async def removed():
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            # Its last sandbox is ending.
            return None if error.code == 409 else error.code

    removing = await until(removed)
    return {
        "name": built.name == f"{name}:v1",
        "said": any("says" in one for one in said),
        "there": there,
        "seen": seen.stdout,
        "tags": tags,
        "failed": [failed_[0], "build_failed" in failed_[1]],
        "removed": [removing, await of(cls.exists(f"{name}:v1"))],
    }


async def ran(sandbox):
    result = await of(sandbox.commands.run("echo out; echo err >&2; printf '\\303\\251'"))
    return {"out": result.stdout, "err": result.stderr, "code": result.exit_code, "error": result.error or ""}


async def failed(sandbox):
    try:
        await of(sandbox.commands.run("echo half; exit 3"))
    except CommandExitException as error:
        return {"code": error.exit_code, "out": error.stdout, "error": error.error}
    return {}


async def settings(sandbox):
    result = await of(sandbox.commands.run("echo $A-$MADE; pwd; id -un", envs={"A": "1"}, cwd="/usr", user="root"))
    return {"out": result.stdout.split()}


async def no_user(sandbox):
    return {"error": (await refused(lambda: sandbox.commands.run("true", user="nobody-here")))[0]}


async def no_folder(sandbox):
    return {"error": (await refused(lambda: sandbox.commands.run("true", cwd="/no/such")))[0]}


async def timed_out(sandbox):
    error = await refused(lambda: sandbox.commands.run("sleep 60", timeout=1))

    async def over():
        return not await of(sandbox.commands.list())

    return {"error": error[0], "over": await until(over)}


async def big(sandbox):
    result = await of(sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x"))
    return {"size": len(result.stdout), "only": set(result.stdout) == {"x"}}


async def streamed(sandbox):
    seen = []
    result = await of(
        sandbox.commands.run("for n in 1 2 3; do echo $n; done", on_stdout=lambda part: seen.append(str(part)))
    )
    return {"seen": "".join(seen), "out": result.stdout}


async def with_input(sandbox):
    command = await of(sandbox.commands.run("read line; echo got $line", background=True, stdin=True))
    await of(sandbox.commands.send_stdin(command.pid, "words\n"))
    result = await of(command.wait())
    return {"out": result.stdout}


async def signalled(sandbox):
    command = await of(sandbox.commands.run("sleep 1000", background=True))
    listed = [one.pid for one in await of(sandbox.commands.list())]
    killed_ = await of(sandbox.commands.kill(command.pid))
    error = await refused(command.wait)
    again = await of(sandbox.commands.kill(command.pid))
    return {"listed": command.pid in listed, "killed": killed_, "again": again, "error": error[0]}


async def attached(sandbox):
    command = await of(sandbox.commands.run("read line; echo got $line", background=True, stdin=True))
    other = await of(sandbox.commands.connect(command.pid))
    await of(sandbox.commands.send_stdin(command.pid, "more\n"))
    return {"out": (await of(other.wait())).stdout, "pid": other.pid == command.pid}


async def terminal(sandbox):
    seen = []
    size = e2b.PtySize(rows=24, cols=80)
    if STYLE == "async":
        pty = await sandbox.pty.create(size, on_data=seen.append)
        await sandbox.pty.send_stdin(pty.pid, b"echo $((6*7)); stty size; exit\n")
        waited = await refused(pty.wait)
    else:
        pty = sandbox.pty.create(size)
        sandbox.pty.resize(pty.pid, e2b.PtySize(rows=30, cols=100))
        sandbox.pty.send_stdin(pty.pid, b"echo $((6*7)); stty size; exit\n")
        waited = await refused(lambda: pty.wait(on_pty=seen.append))
    text = b"".join(bytes(one) for one in seen).decode()
    return {"says": "42" in text, "size": ("24 80" in text) or ("30 100" in text), "end": waited[0]}


async def texts(sandbox):
    wrote = await of(sandbox.files.write("/tmp/a/b/text", "h\u00e9"))
    data = await of(sandbox.files.read("/tmp/a/b/text", format="bytes"))
    return {
        "path": wrote.path,
        "name": wrote.name,
        "text": await of(sandbox.files.read("/tmp/a/b/text")),
        "bytes": list(bytes(data)),
    }


async def binary(sandbox):
    content = bytes(range(256)) * 4096
    await of(sandbox.files.write("/tmp/binary", content))
    read = await of(sandbox.files.read("/tmp/binary", format="stream"))
    parts = [one async for one in read] if STYLE == "async" else list(read)
    return {"same": b"".join(bytes(one) for one in parts) == content}


async def octets(sandbox):
    if "use_octet_stream" not in inspect.signature(sandbox.files.write).parameters:
        return {"same": True}
    content = b"y" * 3_000_000
    await of(sandbox.files.write("/tmp/octets", io.BytesIO(content), use_octet_stream=True, user="root"))
    return {"same": bytes(await of(sandbox.files.read("/tmp/octets", format="bytes"))) == content}


async def many(sandbox):
    wrote = await of(sandbox.files.write_files([{"path": f"/tmp/many/{n}", "data": f"{n}"} for n in range(3)]))
    return {
        "paths": [one.path for one in wrote],
        "read": [await of(sandbox.files.read(f"/tmp/many/{n}")) for n in range(3)],
    }


async def empty(sandbox):
    await of(sandbox.files.write("/tmp/empty", ""))
    return {"text": await of(sandbox.files.read("/tmp/empty"))}


async def missing(sandbox):
    return {
        "read": (await refused(lambda: sandbox.files.read("/no/such")))[0],
        "list": (await refused(lambda: sandbox.files.list("/no/such")))[0],
        "exists": await of(sandbox.files.exists("/no/such")),
    }


async def directories(sandbox):
    files = sandbox.files
    made_, again = await of(files.make_dir("/tmp/d/e")), await of(files.make_dir("/tmp/d/e"))
    await of(files.write("/tmp/d/f", "12345"))
    await of(sandbox.commands.run("chmod 640 /tmp/d/f; ln -s f /tmp/d/link"))
    # Newer clients know links by themselves; to older ones they are of the kind of what they lead to.
    kinds = {"symlink": "file"}
    listed = sorted((one.name, kinds.get(one.type.value, one.type.value)) for one in await of(files.list("/tmp/d")))
    deep = sorted(one.path for one in await of(files.list("/tmp", depth=2)) if one.path.startswith("/tmp/d/"))
    told = await of(files.get_info("/tmp/d/f"))
    moved = await of(files.rename("/tmp/d/f", "/tmp/d/g"))
    await of(files.remove("/tmp/d/g"))
    return {
        "made": [made_, again],
        "listed": listed,
        "deep": deep,
        "info": [told.size, told.mode, told.permissions, told.owner, told.group, told.path],
        "moved": moved.path,
        "left": await of(files.exists("/tmp/d/g")),
    }


async def relative(sandbox):
    """Paths from the sandbox's own directory, which answers have from the root."""
    own = (await of(sandbox.commands.run("mkdir rel; ln -s f rel/link; pwd"))).stdout.strip()
    written = await of(sandbox.files.write("./rel/f", "x"))
    info = await of(sandbox.files.get_info("rel/link"))
    listed = [one.path for one in await of(sandbox.files.list("rel"))]
    renamed = await of(sandbox.files.rename("rel/f", "rel/g"))
    paths = [written.path, info.path, info.symlink_target, *sorted(listed), renamed.path]
    await of(sandbox.files.remove("rel"))
    return {"paths": [one.removeprefix(own.rstrip("/")) for one in paths]}


async def watched(sandbox):
    seen = []
    await of(sandbox.files.make_dir("/tmp/watched"))
    if STYLE == "async":
        handle = await sandbox.files.watch_dir("/tmp/watched", on_event=seen.append)
    else:
        handle = sandbox.files.watch_dir("/tmp/watched")
    await of(sandbox.commands.run("echo x > /tmp/watched/new"))

    async def came():
        if STYLE == "sync":
            seen.extend(handle.get_new_events())
        return [one for one in seen if one.name == "new" and one.type.value == "create"]

    found = bool(await until(came))
    await of(handle.stop())
    return {"created": found}


async def signed(sandbox):
    await of(sandbox.files.write("/tmp/signed", "by address"))
    url = sandbox.download_url("/tmp/signed")
    good = await asyncio.to_thread(_get, url, sandbox)
    bad = await asyncio.to_thread(_get, url.replace("signature=v1_", "signature=v1_x"), sandbox)
    alone = [await asyncio.to_thread(_opened, one) for one in (url, url.replace("signature=v1_", "signature=v1_x"))]
    over = await asyncio.to_thread(_opened, sandbox.download_url("/tmp/signed", use_signature_expiration=-60))
    return {"good": good, "bad": bad[:3], "alone": [alone[0], alone[1][:3]], "over": over}


def _get(url, sandbox, port="49983"):
    return _opened(url, {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": port})


def _opened(url, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


async def ports(sandbox):
    await of(sandbox.files.write("/tmp/site/index.html", "hello from within"))
    await of(sandbox.commands.run("python3 -m http.server -d /tmp/site 8000", background=True, timeout=0))
    host = sandbox.get_host(8000)

    def get():
        request = urllib.request.Request(BRIDGE, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            return ""

    async def look():
        return await asyncio.to_thread(get)

    by_host = await until(look)
    return {"host": by_host, "header": await asyncio.to_thread(_get, BRIDGE + "/index.html", sandbox, "8000")}


CASES = (
    info, pages, killed, shortened, extended, connected, by_metadata, no_image, wrong_key, other_id, not_supported,
    snapshots, templates,
    ran, failed, settings, no_user, no_folder, timed_out, big, streamed, with_input, signalled, attached, terminal,
    texts, binary, octets, many, empty, missing, directories, relative, watched, signed, ports,
)  # fmt: skip


async def main() -> None:
    sandbox = await made(template="base", metadata={"k": "v"}, envs={"MADE": "with"}, timeout=LIVES_S)
    for case in CASES:
        try:
            told = {"case": case.__name__, "saw": await asyncio.wait_for(case(sandbox), WITHIN_S)}
        except Exception as error:  # told to the test
            told = {"case": case.__name__, "error": fails(error)}
        print(json.dumps(told), flush=True)
    await of(sandbox.kill())


asyncio.run(main())
