"""What a user does with Docker's SDK, a case a function. Run by its own Python: `docker_cases.py`.

Prints a JSON object a case: its name, and what it saw or the error that it met.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pathlib
import socket
import tarfile
import tempfile
import threading
import time
import urllib.request

import docker
from docker import errors

IMAGE = os.environ["IMAGE"]
# In a registry that says so.
NO_SUCH = f"{IMAGE.rpartition(':')[0]}-nosuch:1"
FOREVER = "tail -f /dev/null"
WITHIN_S = 60
client = docker.from_env()


def started(command=FOREVER, **options):
    container = client.containers.create(IMAGE, command, **{"network_mode": "none", **options})
    container.start()
    return container


def status(call):
    """The status and the words of a refusal."""
    try:
        call()
    except errors.APIError as error:
        return error.status_code, error.explanation
    return 0, "nothing"


def own_variables(env):
    """Variables without that which every image has."""
    return [one for one in env if not one.startswith("PATH=")]


def until(look):
    """What a look says once that is true."""
    limit = time.monotonic() + WITHIN_S
    while not (seen := look()) and time.monotonic() < limit:
        time.sleep(0.05)
    return seen


def tar(*entries):
    """An archive of files: name, content, and other fields of the entry."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content, fields in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def told(_):
    version = client.version()
    return {
        "ping": client.ping(),
        "api": version["ApiVersion"],
        "os": client.info()["OSType"],
        "networks": sorted(one.name for one in client.networks.list()),
        "volumes": client.volumes.list(),
    }


def created(_):
    container = client.containers.create(
        IMAGE,
        ["sleep", "60"],
        entrypoint=["env", "X=1"],
        name=f"made-{os.getpid()}",
        labels={"a.b/c": "d", "odd label": "kept"},
        environment={"K": "v"},
        working_dir="/made/deep",
        mem_limit="512m",
        nano_cpus=500_000_000,
        pids_limit=100,
        tty=True,
    )
    before = container.status
    container.start()
    container.reload()
    attrs = container.attrs
    saw = {
        "states": [before, container.status],
        "name": container.name == f"made-{os.getpid()}",
        "labels": container.labels,
        "config": [attrs["Path"], attrs["Args"], own_variables(attrs["Config"]["Env"]), attrs["Config"]["WorkingDir"]],
        "limits": [attrs["HostConfig"][name] for name in ("Memory", "NanoCpus", "PidsLimit")],
        "cwd": container.exec_run("pwd").output.decode(),
        "variable": container.exec_run(["sh", "-c", "echo $K"]).output.decode(),
        "pid": attrs["State"]["Pid"] > 0,
        "by": [client.containers.get(one).id == container.id for one in (container.id[:12], container.name)],
    }
    container.remove(force=True)
    return {**saw, "left": status(lambda: client.containers.get(container.id))[0]}


def ran(container):
    both = container.exec_run(["sh", "-c", "echo out; echo err >&2; exit 3"], demux=True)
    one = container.exec_run("echo h\u00e9")
    settings = container.exec_run(
        ["sh", "-c", "echo $A; pwd; id -un"], environment={"A": "1 = 2"}, workdir="/usr", user="root"
    )
    return {
        "code": both.exit_code,
        "streams": [part.decode() for part in both.output],
        "text": one.output.decode(),
        "settings": settings.output.decode().splitlines(),
    }


def not_started(container):
    missing, nowhere = container.exec_run("nosuch"), container.exec_run("true", workdir="/nowhere")
    nobody = container.exec_run("true", user="nobody-there")
    return {
        "codes": [missing.exit_code, nowhere.exit_code, nobody.exit_code],
        "says": [
            b'exec: "nosuch": executable file not found in $PATH' in missing.output,
            b'chdir to cwd ("/nowhere")' in nowhere.output,
            b"unable to find user nobody-there" in nobody.output,
        ],
    }


def streamed(container):
    command = ["sh", "-c", "for i in 1 2 3; do echo $i; while [ ! -e /tmp/go$i ]; do sleep 0.05; done; done"]
    seen = []
    for at, part in enumerate(container.exec_run(command, stream=True).output, 1):
        seen.append(part.decode())
        container.exec_run(f"touch /tmp/go{at}")
    return {"seen": seen}


def big(container):
    out = container.exec_run(["python3", "-c", "print('x' * 4_999_999)"], demux=True).output
    return {"size": len(out[0]), "only": set(out[0]) == {ord("x"), ord("\n")}, "err": out[1]}


def with_input(container):
    made = client.api.exec_create(container.id, ["cat"], stdin=True)["Id"]
    taken = client.api.exec_start(made, socket=True)
    data = b"0123456789" * 100_000
    sender = threading.Thread(target=lambda: (taken._sock.sendall(data), taken._sock.shutdown(socket.SHUT_WR)))
    sender.start()
    came = b""
    while part := taken.read(2**16):
        came += part
    sender.join()
    plain, at = b"", 0
    while at < len(came):
        length = int.from_bytes(came[at + 4 : at + 8], "big")
        plain += came[at + 8 : at + 8 + length]
        at += 8 + length
    return {"same": plain == data, "code": client.api.exec_inspect(made)["ExitCode"]}


def terminal(container):
    made = client.api.exec_create(container.id, ["sh", "-c", "read go; stty size; tty"], stdin=True, tty=True)["Id"]
    taken = client.api.exec_start(made, socket=True, tty=True)
    client.api.exec_resize(made, height=30, width=100)
    taken._sock.sendall(b"go\n")
    came = b""
    while part := taken.read(4096):
        came += part
    return {"size": b"30 100" in came, "tty": b"/dev/pts/" in came}


def detached(container):
    made = client.api.exec_create(container.id, ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.05; done; exit 7"])
    client.api.exec_start(made["Id"], detach=True)
    before = client.api.exec_inspect(made["Id"])
    container.exec_run("touch /tmp/end")
    code = until(lambda: client.api.exec_inspect(made["Id"])["ExitCode"])
    return {"running": [before["Running"], before["ExitCode"]], "pid": before["Pid"] > 0, "code": code}


def twice(container):
    made = client.api.exec_create(container.id, ["true"])["Id"]
    client.api.exec_start(made)
    return {"again": status(lambda: client.api.exec_start(made))[0]}


def killed_by_pid(container):
    made = client.api.exec_create(container.id, "sleep 100")["Id"]
    reader = threading.Thread(target=lambda: client.api.exec_start(made))
    reader.start()
    pid = until(lambda: client.api.exec_inspect(made)["Pid"])
    container.exec_run(f"kill -TERM {pid}", detach=True)
    reader.join(WITHIN_S)
    return {"code": client.api.exec_inspect(made)["ExitCode"]}


def copied_in(container):
    entries = [
        ("d", b"", {"type": tarfile.DIRTYPE, "mode": 0o750}),
        ("d/file", b"text", {"mode": 0o640, "uid": 1234, "gid": 5678}),
        ("d/link", b"", {"type": tarfile.SYMTYPE, "linkname": "file"}),
    ]
    container.exec_run("mkdir -p /in")
    saw = {"plain": container.put_archive("/in", tar(*entries))}
    saw["gzip"] = container.put_archive("/in", gzip.compress(tar(("zipped", b"z", {}))))
    saw["listed"] = container.exec_run(
        "stat -c '%n %a %u %g %N' /in/d /in/d/file /in/d/link /in/zipped"
    ).output.decode()
    saw["nowhere"] = status(lambda: container.put_archive("/nowhere", tar(*entries)))[0]
    saw["file"] = status(lambda: container.put_archive("/in/d/file", tar(*entries)))[0]
    saw["broken"] = status(lambda: container.put_archive("/in", b"no archive" * 100))[0]
    saw["bzip2"] = status(lambda: container.put_archive("/in", b"BZh91AY&SY" * 10))
    return saw


def copied_out(container):
    container.exec_run(["sh", "-c", "mkdir -p /out/a; printf 12345 > /out/a/f; chmod 4755 /out/a/f; ln -s a /out/l"])
    data, stat = container.get_archive("/out/a")
    with tarfile.open(fileobj=io.BytesIO(b"".join(data))) as archive:
        names = archive.getnames()
        content = archive.extractfile("a/f").read().decode()
    _, of_file = container.get_archive("/out/a/f")
    _, of_link = container.get_archive("/out/l")
    return {
        "names": sorted(names),
        "content": content,
        "stat": [stat["name"], bool(stat["mode"] & 1 << 31)],
        "file": [of_file["size"], of_file["mode"] & 0o777, bool(of_file["mode"] & 1 << 23)],
        "link": [of_link["linkTarget"], bool(of_link["mode"] & 1 << 27)],
        "missing": status(lambda: container.get_archive("/nowhere"))[0],
    }


def large_copy(container):
    data = os.urandom(2**20) * 20
    container.put_archive("/", tar(("large", data, {})))
    parts, _ = container.get_archive("/large")
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
        return {"same": archive.extractfile("large").read() == data}


def listed(_):
    mark = f"{os.getpid()}-{time.time_ns()}"
    one, two = started(labels={"mark": mark}), client.containers.create(IMAGE, FOREVER, labels={"mark": mark})
    two.rename(f"renamed-{mark}")
    two.reload()

    def ids(**options):
        return sorted(each.id for each in client.containers.list(**options))

    by = {"filters": {"label": f"mark={mark}"}}
    saw = {
        "running": ids(**by) == [one.id],
        "all": ids(all=True, **by) == sorted([one.id, two.id]),
        "name": ids(all=True, filters={"name": f"renamed-{mark}"}) == [two.id],
        "status": ids(filters={**by["filters"], "status": "created"}) == [two.id],
        "unknown": status(lambda: client.containers.list(filters={"ancestor": "x"}))[0],
        "conflict": status(lambda: client.containers.create(IMAGE, FOREVER, name=two.name))[0],
        "badly": status(lambda: client.containers.create(IMAGE, FOREVER, name="a/b"))[0],
    }
    for each in (one, two):
        each.remove(force=True)
    return saw


def stopped(_):
    polite = started(["sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done"])
    polite.exec_run("touch /kept")
    until(lambda: polite.exec_run("pgrep sleep").exit_code == 0)
    polite.stop()
    polite.reload()
    saw = {
        "end": [polite.status, polite.attrs["State"]["ExitCode"]],
        "exec": status(lambda: polite.exec_run("true"))[0],
        "files": len(b"".join(polite.get_archive("/kept")[0])) > 0,
    }
    polite.start()
    saw["again"] = polite.exec_run("ls /kept").exit_code
    saw["running"] = status(polite.remove)[0]
    polite.kill()
    saw["killed"] = polite.wait()["StatusCode"]
    stubborn = started(["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"])
    stubborn.stop(timeout=1)
    saw["forced"] = stubborn.wait()["StatusCode"]
    for each in (polite, stubborn):
        each.remove()
    return saw


def ended_by_itself(_):
    container = started(["sh", "-c", "sleep 1000 & echo out; echo err >&2; exit 4"])
    end = container.wait()
    container.reload()
    saw = {
        "end": end,
        "state": [container.status, container.attrs["State"]["ExitCode"]],
        "logs": [container.logs(stdout=True, stderr=False).decode(), container.logs(stdout=False).decode()],
    }
    container.remove()
    return saw


def logs(_):
    container = started(
        ["sh", "-c", "for i in 1 2 3 4; do echo $i; done; while [ ! -e /go ]; do sleep 0.05; done; echo 5"]
    )
    until(lambda: container.logs().count(b"\n") == 4)
    saw = {"all": container.logs().decode(), "tail": container.logs(tail=2).decode()}
    follow = container.logs(stream=True, follow=True, tail=1)
    first = next(follow)
    container.exec_run("touch /go")
    saw["followed"] = (first + b"".join(follow)).decode()
    saw["timestamps"] = status(lambda: container.logs(timestamps=True))[0]
    container.remove(force=True)
    return saw


def attached(_):
    container = client.containers.create(IMAGE, ["sh", "-c", "read word; echo got $word"], stdin_open=True)
    taken = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    container.start()
    taken._sock.sendall(b"words\n")
    came = b""
    while part := taken.read(4096):
        came += part
    end = container.wait()["StatusCode"]
    container.remove()
    return {"came": came[8:].decode(), "end": end}


def run(_):
    out = client.containers.run(IMAGE, ["sh", "-c", "echo out; echo err >&2"], remove=True, stderr=True)
    saw = {"out": sorted(out.decode().splitlines())}
    try:
        client.containers.run(IMAGE, ["sh", "-c", "echo no >&2; exit 4"], remove=True)
    except errors.ContainerError as error:
        saw["failed"] = [error.exit_status, error.stderr.decode()]
    gone = client.containers.run(IMAGE, ["sh", "-c", "exit 0"], detach=True, auto_remove=True)
    saw["removed"] = until(lambda: status(lambda: client.containers.get(gone.id))[0])
    # Where the image has a command of its own, that is an interpreter, which ends with its input.
    try:
        saw["own_command"] = client.containers.run(IMAGE, remove=True).decode()
    except errors.APIError as error:
        saw["own_command"] = error.explanation
    saw["nosuch"] = status(lambda: client.containers.run(IMAGE, "nosuch", auto_remove=True, detach=True))[0]
    return saw


def images(_):
    saw = {"here": client.images.get(IMAGE).id.startswith("sha256:")}
    saw["listed"] = IMAGE in [tag for one in client.images.list() for tag in one.tags]
    saw["pulled"] = client.images.pull(*IMAGE.rsplit(":", 1)).tags == [IMAGE]
    for name, call in (("get", client.images.get), ("pull", client.images.pull)):
        try:
            call(NO_SUCH)
        except errors.ImageNotFound as error:
            saw[name] = error.status_code
    try:
        client.containers.run(NO_SUCH, "true")
    except errors.ImageNotFound as error:
        saw["run"] = error.status_code
    client.images.get(IMAGE).tag("mine", "2")
    saw["tagged"] = client.containers.run("mine:2", "echo ran", remove=True).decode()
    client.images.remove("mine:2")
    saw["untagged"] = status(lambda: client.images.get("mine:2"))[0]
    return saw


def committed(container):
    container.exec_run("touch /made-here")
    code = status(lambda: container.commit("kept", "1"))
    if code[0]:
        return {"code": code[0], "says": "unsupported" in code[1]}
    made = client.images.get("kept:1")
    out = client.containers.run(made, "ls /made-here", remove=True).decode()
    # The platform keeps it for as long as the sandbox is being removed.
    removed = until(lambda: status(lambda: client.images.remove("kept:1"))[0] == 0)
    return {"code": 0, "out": out, "removed": removed}


DOCKERFILE = f"""
FROM {IMAGE} AS base
ARG WORD=none
ENV WORD=$WORD
WORKDIR /app
COPY . .
RUN echo built by $WORD
ENTRYPOINT ["sh", "-c"]
CMD ["echo $WORD; pwd; ls"]
LABEL of=image
EXPOSE 8000
STOPSIGNAL SIGINT
FROM base AS failing
RUN echo said >&2; false
"""


LABEL = 'a "$WORD" \\ \u00e9'


def built(_):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (("Dockerfile", DOCKERFILE), ("kept", "k"), ("left", "l"), (".dockerignore", "left\n.d*")):
            (root / name).write_text(text)
        options = {"path": folder, "target": "base", "buildargs": {"WORD": "one"}}
        image, lines = client.images.build(tag="built:1", rm=True, **options)
        said = "".join(line.get("stream", "") for line in lines)
        untagged = client.images.build(**options, gzip=True)[0]
        quiet = client.images.build(quiet=True, **options)[0]
        (root.parent / f"{root.name}.Dockerfile").write_text(f"FROM {IMAGE}\nCOPY kept /")
        elsewhere = {"dockerfile": f"../{root.name}.Dockerfile", "tag": "built:2", "labels": {"of": LABEL}}
        outside = client.images.build(path=folder, **elsewhere)[0]
        (root.parent / f"{root.name}.Dockerfile").unlink()
        try:
            client.images.build(path=folder, target="failing")
            failed = []
        except errors.BuildError as error:
            log = "".join(line.get("stream", "") for line in error.build_log)
            failed = ["said" in log, "[build_failed, fault: caller, mask_sample: false]" in error.msg]
    config, container = image.attrs["Config"], client.containers.create("built:1", name="of-built")
    own = container.attrs["Config"]
    saw = {
        "said": ["built by one" in said, "Successfully tagged built:1" in said],
        "same": len({image.id, untagged.id, quiet.id}) == 1,
        "tags": image.tags,
        "config": [config["Entrypoint"], config["Cmd"], config["WorkingDir"], config["ExposedPorts"]],
        "labels": [config["Labels"]["of"], own["Labels"]["of"]],
        "label": outside.attrs["Config"]["Labels"]["of"] == LABEL,
        "own": [own["Entrypoint"], own_variables(own["Env"]), own["WorkingDir"]],
        "of": container.image.id == image.id,
        "ran": client.containers.run("built:1", remove=True).decode().split(),
        "other": client.containers.run("built:1", ["echo $WORD"], environment={"WORD": "two"}, remove=True).decode(),
        "plain": client.containers.run(image.id, ["kept"], entrypoint=["ls"], remove=True).decode(),
        "outside": client.containers.run(outside, "cat /kept", remove=True).decode(),
        "failed": failed,
    }
    container.remove()
    client.images.get("built:1").tag("built", "3")
    client.images.remove("built:3")
    saw["still"] = client.containers.run("built:1", "true", remove=True).decode()
    until(lambda: status(lambda: client.images.remove("built:1"))[0] == 0)
    until(lambda: status(lambda: client.images.remove("built:2"))[0] == 0)
    saw["gone"] = status(lambda: client.images.get(image.id))[0]
    return saw


def ports(_):
    container = started("python3 -m http.server 8000", ports={"8000/tcp": ("127.0.0.1", None)})
    container.reload()
    port = container.ports["8000/tcp"][0]["HostPort"]

    def answer():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10) as told:
                return told.status
        except OSError:
            return 0

    saw = {"status": until(answer)}
    container.remove(force=True)
    with socket.socket() as probe:
        saw["closed"] = probe.connect_ex(("127.0.0.1", int(port))) != 0
    return saw


REFUSED = {
    "binds": {"volumes": {"/etc": {"bind": "/x", "mode": "ro"}}},
    "mounts": {"mounts": [docker.types.Mount("/x", "/etc", type="bind")]},
    "privileged": {"privileged": True},
    "network": {"network_mode": "host"},
    "devices": {"devices": ["/dev/fuse:/dev/fuse"]},
    "gpus": {"device_requests": [docker.types.DeviceRequest(count=1, capabilities=[["gpu"]])]},
    "capability": {"cap_add": ["SYS_ADMIN"]},
    "security": {"security_opt": ["seccomp=unconfined"]},
    "shared memory": {"shm_size": "1g"},
    "pid": {"pid_mode": "host"},
    "hostname": {"hostname": "x"},
    "read only": {"read_only": True},
    "tmpfs": {"tmpfs": {"/x": ""}},
    "restart": {"restart_policy": {"Name": "always"}},
    "platform": {"platform": "linux/s390x"},
    "udp": {"ports": {"53/udp": 5353}},
    "swap": {"mem_limit": "100m", "memswap_limit": "200m"},
    "weights": {"cpu_shares": 512},
}


def refused(_):
    before = len(client.containers.list(all=True))
    saw = {}
    for name, options in REFUSED.items():
        code, words = status(lambda options=options: client.containers.create(IMAGE, FOREVER, **options))
        saw[name] = [code, "is not supported by rollbox's bridge: " in words]
    calls = {
        "pause": lambda: client.containers.get(before_id).pause(),
        "cache": client.api.prune_builds,
        "network": lambda: client.networks.create("x"),
        "volume": lambda: client.volumes.create("x"),
        "login": lambda: client.login("a", "b"),
    }
    before_id = _.id
    missing = {name: status(call)[0] for name, call in calls.items()}
    return {"saw": saw, "missing": missing, "made": len(client.containers.list(all=True)) - before}


CASES = (
    told,
    created,
    ran,
    not_started,
    streamed,
    big,
    with_input,
    terminal,
    detached,
    twice,
    killed_by_pid,
    copied_in,
    copied_out,
    large_copy,
    listed,
    stopped,
    ended_by_itself,
    logs,
    attached,
    run,
    images,
    committed,
    built,
    ports,
    refused,
)

if __name__ == "__main__":
    shared = started()
    for case in CASES:
        try:
            outcome = {"saw": case(shared)}
        except Exception as error:  # what a user would see
            outcome = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": case.__name__, **outcome}), flush=True)
    shared.remove(force=True)
