"""What a user does with Prime's own SDK, a case a function. Run by its own Python: `prime_cases.py sync|async`.

Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path

import prime_sandboxes as prime
from prime_sandboxes import APIClient, AsyncSandboxClient, CreateSandboxRequest, SandboxClient

STYLE = sys.argv[1]
NEW = not hasattr(SandboxClient, "expose")
"""Whether it is of the newer generation, that knows Connect alone."""
IMAGE, REGISTRY = os.environ["IMAGE"], os.environ["IMAGE"].rpartition("/")[0]


async def of(value):
    """The value of a call, of either style."""
    return await value if inspect.isawaitable(value) else value


def client_of(api_key=None):
    if STYLE == "async":
        return AsyncSandboxClient(api_key=api_key)
    return SandboxClient(APIClient(api_key=api_key))


CLIENT = client_of()


def asked(**options):
    """A create; where both generations are spoken, the newer one is asked for by `vm`."""
    given = {"name": f"case-{uuid.uuid4().hex[:8]}", "docker_image": IMAGE, "timeout_minutes": 10, **options}
    if NEW:
        given.pop("vm", None)
    return CreateSandboxRequest(**given)


async def made(**options):
    sandbox = await of(CLIENT.create(asked(**options)))
    await of(CLIENT.wait_for_creation(sandbox.id))
    return sandbox


async def run(box, command, **options):
    return await of(CLIENT.execute_command(box.id, command, **options))


async def delete(box):
    return await of(CLIENT.delete(box.id))


async def refused(call):
    """The class and the text of the error of a call."""
    try:
        await of(call())
    except Exception as error:  # what a user would see
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


async def created(box):
    sandbox = await of(CLIENT.create(asked(name="mine", labels=["a b", "c"], idle_timeout_minutes=5, memory_gb=0.5)))
    told = await of(CLIENT.get(sandbox.id))
    listed = await of(CLIENT.list(labels=["a b", "c"], exclude_terminated=True))
    await delete(sandbox)
    return {
        "told": [told.name, told.docker_image == IMAGE, told.labels, told.status, told.memory_gb, told.cpu_cores],
        "times": [told.timeout_minutes, told.idle_timeout_minutes],
        "at_once": sandbox.status,
        "listed": sandbox.id in [one.id for one in listed.sandboxes],
    }


async def created_once(box):
    key = uuid.uuid4().hex
    request = asked(name="once", idempotency_key=key)
    first, second = await of(CLIENT.create(request)), await of(CLIENT.create(request))
    other = await refused(lambda: CLIENT.create(asked(name="another", idempotency_key=key)))
    await delete(first)
    return {"same": first.id == second.id, "other": [other[0], "other parameters" in other[1]]}


async def unlimited(box):
    """What verifiers asks for: no limit of time, and an end when it is idle."""
    sandbox = await of(CLIENT.create(asked(timeout_minutes=-1, idle_timeout_minutes=60)))
    told = [sandbox.timeout_minutes, sandbox.idle_timeout_minutes]
    await delete(sandbox)
    return {"minutes": told}


async def pages(box):
    label = f"run-{uuid.uuid4().hex}"
    boxes = [await of(CLIENT.create(asked(labels=[label]))) for _ in range(3)]
    first = await of(CLIENT.list(labels=[label], per_page=2, exclude_terminated=True))
    second = await of(CLIENT.list(labels=[label], per_page=2, page=2, exclude_terminated=True))
    gone = await of(CLIENT.bulk_delete(sandbox_ids=[boxes[0].id]))
    rest = await of(CLIENT.bulk_delete(labels=[label]))
    left = await of(CLIENT.list(labels=[label], exclude_terminated=True))
    every = await of(CLIENT.list(labels=[label]))
    return {
        "first": [len(first.sandboxes), first.total, first.has_next],
        "second": [len(second.sandboxes), second.has_next],
        "deleted": [len(gone.succeeded), len(rest.succeeded), rest.failed],
        "left": [left.total, every.total],
        "ended": sorted({one.status for one in every.sandboxes}),
    }


async def many_at_once(box):
    boxes = [await of(CLIENT.create(asked())) for _ in range(3)]
    statuses = await of(CLIENT.bulk_wait_for_creation([one.id for one in boxes]))
    await of(CLIENT.bulk_delete(sandbox_ids=[one.id for one in boxes]))
    return {"statuses": sorted(set(statuses.values())), "all": len(statuses)}


async def deleted(box):
    mine = await made()
    first = await refused(lambda: CLIENT.delete(mine.id))
    second = await refused(lambda: CLIENT.delete(mine.id))
    told = await of(CLIENT.get(mine.id))
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/file"
        down = await refused(lambda: CLIENT.download_file(mine.id, "/etc/hostname", file))
        up = await refused(lambda: CLIENT.upload_bytes(mine.id, "/tmp/x", b"x", "x"))
    runs = await refused(lambda: CLIENT.execute_command(mine.id, "true"))
    return {
        "deletes": [first[0], second[0]],
        "status": [told.status, told.termination_reason, told.terminated_at is not None],
        "run": [runs[0], "mask_sample: true" in runs[1]],
        "read": (await refused(lambda: CLIENT.read_file(mine.id, "/etc/hostname")))[0],
        "files": [down[0], up[0]],
    }


async def no_image(box):
    request = asked(docker_image=f"{REGISTRY}/no-such-image:1")
    error = await refused(lambda: CLIENT.create(request))
    return {"error": error[0], "says": "image_not_found" in error[1]}


async def no_such_id(box):
    error = await refused(lambda: CLIENT.get("sb-0000000000000000"))
    runs = await refused(lambda: CLIENT.execute_command("sb-0000000000000000", "true"))
    return {"get": [error[0], "404" in error[1]], "run": [runs[0], "404" in runs[1]]}


async def wrong_key(box):
    other = client_of("another-key-of-nobody")
    try:
        return {"error": (await refused(lambda: other.get(box.id)))[0]}
    finally:
        if STYLE == "async":
            await other.aclose()


async def other_version(box):
    """A field of a later client: refused with its name."""
    key, url = os.environ["PRIME_API_KEY"], os.environ["PRIME_API_BASE_URL"]
    body = json.dumps({"name": "x", "docker_image": IMAGE, "idempotency_key": "k", "hibernate": True}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1/sandbox", data=body, headers=headers)
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        return {"status": error.code, "named": "hibernate" in error.read().decode()}
    return {"status": 200}


async def not_supported(box):
    """What the bridge says of what it has not."""
    asked_ = {
        "networks": ("POST", "/sandbox/networks", {"name": "x"}),
        "images": ("GET", "/images", None),
        "volumes": ("GET", "/sandbox/volumes", None),
        "ssh": ("POST", f"/sandbox/{box.id}/ssh-session", {}),
    }
    says = {}
    for name, (method, path, body) in asked_.items():
        error = await refused(lambda m=method, p=path, b=body: CLIENT.client.request(m, p, json=b))
        says[name] = error[0] == "APIError" and "is not supported by rollbox's bridge" in error[1]
    return {"says": says, "runs": (await run(box, "echo on")).stdout}


async def ran(box):
    told = await run(box, "echo out; printf '\\303\\251'; echo err >&2")
    return {"out": told.stdout, "err": told.stderr, "code": told.exit_code}


async def failed(box):
    told = await run(box, "echo half; exit 3")
    return {"out": told.stdout, "code": told.exit_code}


async def signalled(box):
    return {"code": (await run(box, "kill -KILL $$")).exit_code}


async def settings(box):
    told = await run(box, "echo $A-$B; pwd; whoami", env={"A": "1", "B": "with words"}, working_dir="/usr")
    return {"out": told.stdout.splitlines()}


async def as_user(box):
    """0.2.42 has users of its older generation alone."""
    told = await run(box, "whoami", user="nobody")
    missing = await refused(lambda: CLIENT.execute_command(box.id, "true", user="no-such-user"))
    return {"out": told.stdout, "missing": [missing[0], "no-such-user" in missing[1]]}


async def no_folder(box):
    error = await refused(lambda: CLIENT.execute_command(box.id, "true", working_dir="/no/such"))
    return {"error": error[0], "says": "/no/such" in error[1]}


async def timed_out(box):
    error = await refused(lambda: CLIENT.execute_command(box.id, "touch /tmp/timed; exec sleep 600", timeout=1))
    look = "for n in $(seq 200); do pgrep -x sleep || exit 0; sleep 0.1; done; exit 1"
    gone = await run(box, "! command -v pgrep || { " + look + "; }", timeout=60)
    return {"error": error[0], "gone": gone.exit_code}


async def big(box):
    told = await run(box, "head -c 5000000 /dev/zero | tr '\\0' x")
    return {"size": len(told.stdout), "only": set(told.stdout) == {"x"}}


async def texts(box):
    told = await of(CLIENT.upload_bytes(box.id, "/tmp/a/b/text", "h\u00e9".encode(), "text"))
    window = await of(CLIENT.read_file(box.id, "/tmp/a/b/text", offset=-2, length=10))
    missing = await refused(lambda: CLIENT.read_file(box.id, "/tmp/none"))
    return {
        "written": [told.success, told.path, told.size],
        "read": (await of(CLIENT.read_file(box.id, "/tmp/a/b/text"))).content,
        "window": [window.content, window.size, window.total_size, window.offset, window.truncated],
        "missing": missing[0],
    }


async def binary(box):
    data = os.urandom(300_000)
    with tempfile.TemporaryDirectory() as folder:
        up, down = Path(folder, "up"), Path(folder, "deep/down")
        up.write_bytes(data)
        told = await of(CLIENT.upload_file(box.id, "/tmp/binary", str(up)))
        await of(CLIENT.download_file(box.id, "/tmp/binary", str(down)))
        missing = await refused(lambda: CLIENT.download_file(box.id, "/tmp/none", str(down)))
        return {"same": down.read_bytes() == data, "size": told.size, "missing": [missing[0], "404" in missing[1]]}


async def jobs(box):
    job = await of(CLIENT.run_background_job(box.id, "echo $A; echo e >&2; exit 7", env={"A": "x"}, poll_interval=1))
    later = await of(CLIENT.start_background_job(box.id, "cat /tmp/go", working_dir="/"))
    # A pipe that nobody writes to yet: the job is there until this says so.
    await run(box, "mkfifo /tmp/pipe")
    waits = await of(CLIENT.start_background_job(box.id, "cat /tmp/pipe"))
    open_ = await of(CLIENT.get_background_job(box.id, waits))
    await run(box, "echo through > /tmp/pipe")
    while not (end := await of(CLIENT.get_background_job(box.id, waits))).completed:
        pass
    while not (bad := await of(CLIENT.get_background_job(box.id, later))).completed:
        pass
    return {
        "job": [job.completed, job.exit_code, job.stdout, job.stderr],
        "open": open_.completed,
        "end": [end.exit_code, end.stdout],
        "failed": [bad.exit_code, "No such file" in bad.stderr],
    }


async def started(box):
    """A command that is given to the create, and its log."""
    command = "echo begun $A; echo e >&2; tail -f /dev/null"
    given = prime.StartCommand(executable="sh", args=["-c", command]) if NEW else command
    more = {} if NEW else {"vm": False}
    mine = await made(start_command=given, environment_vars={"A": "1"}, **more)
    while "e\n" not in (logs := await of(CLIENT.get_logs(mine.id))):
        pass
    alive = await run(mine, "grep -l tail /proc/*/cmdline | wc -l")
    await delete(mine)
    return {"logs": logs, "none": await of(CLIENT.get_logs(box.id)), "alive": int(alive.stdout) >= 1}


async def exposed(box):
    """Ports of the older generation."""
    if NEW:
        return {"older": False}
    await run(box, "cd /tmp && echo within > /tmp/page && (python3 -m http.server 8000 > /dev/null 2>&1 &)")
    port = await of(CLIENT.expose(box.id, 8000, name="web"))
    text = None
    while text is None:
        try:
            with urllib.request.urlopen(f"{port.url.rstrip('/')}/page") as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError:
            pass
    listed = await of(CLIENT.list_exposed_ports(box.id))
    every = await of(CLIENT.list_all_exposed_ports())
    tcp = await refused(lambda: CLIENT.expose(box.id, 9000, protocol="TCP"))
    await of(CLIENT.unexpose(box.id, port.exposure_id))
    left = await of(CLIENT.list_exposed_ports(box.id))
    return {
        "text": text,
        "listed": [[one.port, one.name] for one in listed.exposures],
        "every": [one.port for one in every.exposures if one.sandbox_id == box.id],
        "tcp": "is not supported" in tcp[1],
        "left": len(left.exposures),
    }


async def network(box):
    """What there is without a network policy of its own, and what an engine says to one."""
    told = await of(CLIENT.get_network(box.id))
    return {"policy": told.policy.allowlist, "applied": told.applied}


async def processes(box):
    """Live processes, of the asynchronous client alone."""
    if STYLE == "sync":
        return {"sync": True}
    box = await made(vm=True)
    process = await CLIENT.open_process(box.id, "while read line; do echo got $line; done", env={"A": "1"})
    await process.write_stdin(b"words\n")
    await process.write_stdin(b"more\n")
    out = b""
    async for data in process.stdout:
        out += data
        if out.count(b"\n") == 2:
            break
    await process.terminate()
    code = await process.wait()
    await process.aclose()
    other = await CLIENT.open_process(box.id, "echo e >&2; exec cat")
    await other.kill()
    killed = await other.wait()
    await other.aclose()
    ran = await run(box, "echo newer")
    await delete(box)
    return {"ran": ran.stdout, "out": out.decode(), "pid": process.pid > 0, "codes": [code, killed]}


async def checkpoints(box):
    """Checkpoints of files, of the newest client alone."""
    if not hasattr(CLIENT, "wait_for_checkpoint"):
        return {"older": False}
    await run(box, "echo kept > /root/kept")
    taken = await of(CLIENT.checkpoint(box.id))
    done = await of(CLIENT.wait_for_checkpoint(taken.id))
    restored = await of(CLIENT.create(CreateSandboxRequest(name="restored", checkpoint_id=taken.id, timeout_minutes=5)))
    await of(CLIENT.wait_for_creation(restored.id))
    text = (await run(restored, "cat /root/kept")).stdout
    listed = [one.id for one in await of(CLIENT.list_checkpoints(box.id))]
    await delete(restored)
    # As long as the sandbox that was made of it is there, a checkpoint is needed.
    while (gone := await of(CLIENT.delete_sandbox_checkpoints(box.id))).errors:
        assert gone.errors[0].code == "CONFLICT"
    missing = await refused(lambda: CLIENT.get_checkpoint(taken.id))
    return {
        "state": done.state,
        "text": text,
        "listed": listed == [taken.id],
        "deleted": gone.deleted == [taken.id],
        "missing": [missing[0], "404" in missing[1]],
    }


async def killed(mine):
    """Raise what a user would: on an engine the command is killed alone, and the sandbox lives."""
    told = await run(mine, "exec python3 -c 'x = b\"x\" * 2**30'")
    if told.exit_code != 137 or (await run(mine, "echo on")).stdout != "on\n":
        raise AssertionError(str(told))


async def over_memory(box):
    """A command that passes the memory of its sandbox."""
    mine = await made(memory_gb=0.1)
    error = await refused(lambda: killed(mine))
    await delete(mine)
    return {"error": error[0]}


CASES = [
    created,
    created_once,
    unlimited,
    pages,
    many_at_once,
    deleted,
    no_image,
    no_such_id,
    wrong_key,
    other_version,
    not_supported,
    ran,
    failed,
    signalled,
    settings,
    as_user,
    no_folder,
    timed_out,
    big,
    texts,
    binary,
    jobs,
    started,
    exposed,
    network,
    processes,
    checkpoints,
    over_memory,
]


async def main():
    wanted = sys.argv[2:]
    # A busy machine needs minutes for all cases.
    box = await made(timeout_minutes=60)
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        try:
            told = {"case": case.__name__, "saw": await case(box)}
        except Exception as error:  # what a user would see
            told = {"case": case.__name__, "error": [type(error).__name__, str(error)]}
        print(json.dumps(told), flush=True)
    await delete(box)
    if STYLE == "async":
        await CLIENT.aclose()


asyncio.run(main())
