"""Every bridge against requests that are nearly right: each is served or refused in its protocol's words.

None is a failure of the bridge, and the bridge serves what comes after it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as some
from yarl import URL

from rollbox_bridges.connect.framing import END_OF_STREAM, Envelopes, enveloped
from rollbox_bridges.e2b import filesystem, processes
from rollbox_bridges.e2b.messages import FILESYSTEM, PROCESS
from rollbox_bridges.prime import commands
from rollbox_bridges.prime.messages import SERVICE, SESSION
from tests.support import docker_speaking, e2b_speaking, fusion_speaking, hostile, prime_speaking
from tests.support.gateway_fake import API_KEY, FakeGateway, serving

_T = TypeVar("_T")
FAILED = b"the bridge has failed"
TAGS = {"a": "1"}


class Running:
    """A fake gateway and a bridge on a loop of their own, between whose turns a property test makes up requests."""

    def __init__(self, runner: asyncio.Runner, stack: AsyncExitStack, fake: FakeGateway) -> None:
        self._runner = runner
        self._stack = stack
        self.fake = fake

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(work)

    def entered(self, manager: Any) -> Any:
        return self.run(self._stack.enter_async_context(manager))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        fake = runner.run(stack.enter_async_context(serving()))
        fake.files.root = tmp_path
        try:
            yield Running(runner, stack, fake)
        finally:
            runner.run(stack.aclose())


def sound(answer: Any, wanted: Callable[[Any], bool]) -> None:
    """Check that an answer is one of the protocol."""
    assert FAILED not in answer.body, answer.body
    assert answer.status != 500, answer
    if answer.status >= 400:
        assert wanted(answer.json), answer


def of_connect(answer: Any) -> None:
    """Check that an answer is one of Connect, with or without a stream."""
    assert FAILED not in answer.body
    if answer.headers["Content-Type"].startswith("application/connect+"):
        reader = Envelopes(2**23)
        came = [*reader.feed(answer.body)]
        reader.finish()
        assert came[-1].flags == END_OF_STREAM
        assert b'"internal"' not in came[-1].content, came[-1]
    elif answer.status >= 400 and answer.status != 415:
        told = json.loads(answer.body)
        assert isinstance(told["code"], str)
        assert told["code"] != "internal", told


E2B_CREATE: dict[str, Any] = {
    "templateID": "base",
    "timeout": 60,
    "metadata": TAGS,
    "envVars": TAGS,
    "allow_internet_access": True,
    "network": {"allowOut": ["a.org"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": True},
    "autoPause": False,
    "lifecycle": {"onTimeout": "kill"},
    "secure": True,
}


def test_e2bs_control_plane(running: Running) -> None:
    e2b = running.entered(e2b_speaking.bridging(running.fake))
    name = running.run(e2b.create())["sandboxID"]

    def is_refusal(told: Any) -> bool:
        return isinstance(told["code"], int) and isinstance(told["message"], str)

    @given(
        some.one_of(
            some.tuples(some.just(("POST", "/v2/sandboxes")), hostile.bodies(E2B_CREATE)),
            some.tuples(some.just(("POST", f"/sandboxes/{name}/timeout")), hostile.bodies({"timeout": 60})),
            some.tuples(some.just(("POST", f"/sandboxes/{name}/refreshes")), hostile.bodies({"duration": 60})),
            some.tuples(some.just(("POST", f"/sandboxes/{name}/connect")), hostile.bodies({"timeout": 60})),
            some.tuples(some.just(("PUT", f"/sandboxes/{name}/network")), hostile.bodies(E2B_CREATE["network"])),
            some.tuples(
                some.just(("POST", f"/sandboxes/{name}/snapshots")), hostile.bodies({"memory": False, "name": "a:1"})
            ),
            some.tuples(
                some.just(("POST", "/v3/templates")), hostile.bodies({"name": "mine", "tags": ["a"], "cpuCount": 2})
            ),
            some.tuples(some.just(("POST", "/templates/tags")), hostile.bodies({"target": "mine:1", "tags": ["b"]})),
        )
    )
    def refuse(asked: tuple[tuple[str, str], Any]) -> None:
        (method, path), body = asked
        sound(running.run(e2b.control(method, path, body)), is_refusal)

    @given(some.sampled_from(["limit", "nextToken", "metadata", "state", "template"]), some.text(max_size=30))
    def ask(name: str, value: str) -> None:
        sound(running.run(listed(e2b, "/v2/sandboxes", "X-API-Key", name, value)), is_refusal)

    refuse()
    ask()
    sound(running.run(listed(e2b, "/v2/sandboxes", "X-API-Key", "limit", "1" * 4400)), is_refusal)
    assert running.run(e2b.control("GET", f"/sandboxes/{name}")).status == 200


async def listed(speaker: Any, path: str, header: str, name: str, value: str) -> Any:
    """Ask for a list, with a parameter."""
    key = f"Bearer {speaker.key}" if header == "Authorization" else speaker.key
    async with speaker.http.get(speaker.url + path, params={name: value}, headers={header: key}) as answer:
        return e2b_speaking.Answer(answer.status, answer.headers, await answer.read())


E2B_CALLS: list[tuple[str, type[Any], dict[str, Any], bool]] = [
    (
        f"process.Process/{name}",
        PROCESS[f"{name}Request"],
        {
            "process": {"cmd": "true", "args": ["x"], "envs": TAGS, "cwd": "/"}
            if name == "Start"
            else {"pid": 1, "tag": "a"},
            "stdin": False,
            "tag": "a",
            "pty": {"size": {"cols": 80, "rows": 24}},
            "input": {"stdin": "eA=="},
            "signal": 9,
            "start": {"process": {"pid": 1}},
        },
        streams,
    )
    for name, (_, streams) in processes.CALLS.items()
] + [
    (
        f"filesystem.Filesystem/{name}",
        FILESYSTEM[f"{name}Request"],
        {"path": "/none", "depth": 1, "source": "/none", "destination": "/other", "watcherId": "x", "recursive": True},
        streams,
    )
    for name, (_, streams) in filesystem.CALLS.items()
]
PRIME_CALLS = [
    (
        f"{SERVICE}/{name}",
        SESSION[f"{name}Request"],
        {
            "command": {"cmd": "true", "args": ["x"], "envs": TAGS, "cwd": "/", "user": "root"},
            "session": {"pid": 1},
            "sessionUuid": "11111111-2222-4333-8444-555555555555",
            "stdin": False,
            "pty": {"size": {"cols": 80, "rows": 24}},
            "input": {"stdin": "eA=="},
            "signal": 9,
            "start": {"session": {"pid": 1}},
        },
        streams,
    )
    for name, (_, streams) in commands.CALLS.items()
]


@some.composite
def calls(draw: some.DrawFn, table: Any) -> tuple[str, bytes, dict[str, str]]:
    """A call of Connect that is nearly right, in either codec: its name, its body, its headers."""
    name, kind, fields, streams = draw(some.sampled_from(table))
    known = {one.json_name for one in kind.DESCRIPTOR.fields}
    message = {key: value for key, value in fields.items() if key in known}
    if draw(some.booleans()):
        codec, data = "json", hostile.written(draw(hostile.bodies(message or {"later": 1})))
    else:
        whole = json_format.ParseDict(_one_of_each(kind, message), kind()).SerializeToString()
        codec, data = "proto", draw(hostile.spoiled(whole))
    if streams:
        data = enveloped(data, draw(some.sampled_from([0, 0, 0, 1, 2, 4])))
        data = draw(some.just(data) | hostile.spoiled(data))
    headers = {"Content-Type": f"application/{'connect+' if streams else ''}{codec}"}
    more = draw(
        some.sampled_from(
            [
                {},
                {"Connect-Timeout-Ms": "50"},
                {"Keepalive-Ping-Interval": "0"},
                {"Authorization": "Basic ="},
                {"Content-Encoding": "gzip"},
            ]
        )
    )
    return name, data, {**headers, **more, "Connect-Timeout-Ms": "50"}


def _one_of_each(kind: Any, message: dict[str, Any]) -> dict[str, Any]:
    """A message without fields that exclude one another."""
    for group in kind.DESCRIPTOR.oneofs:
        for extra in [one.json_name for one in group.fields if one.json_name in message][1:]:
            message = {key: value for key, value in message.items() if key != extra}
    if message.get("process") == {"pid": 1, "tag": "a"}:
        message = {**message, "process": {"pid": 1}}
    return message


def test_e2bs_calls_within_a_sandbox(running: Running) -> None:
    e2b = running.entered(e2b_speaking.bridging(running.fake))
    running.run(e2b.create())

    @given(calls(E2B_CALLS))
    def refuse(call: tuple[str, bytes, dict[str, str]]) -> None:
        name, data, headers = call
        of_connect(running.run(e2b.within("POST", f"/{name}", data=data, **headers)))

    refuse()
    assert running.run(e2b.within("GET", "/health")).status == 204


def test_primes_calls_within_a_sandbox(running: Running) -> None:
    prime = running.entered(prime_speaking.bridging(running.fake))
    running.run(prime.create())

    @given(calls(PRIME_CALLS))
    def refuse(call: tuple[str, bytes, dict[str, str]]) -> None:
        name, data, headers = call
        headers.pop("Authorization", None)
        of_connect(running.run(prime.within("POST", name, data, **headers)))

    refuse()
    assert running.run(prime.call("List", "ListRequest", {})).status == 200


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="/a"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\nwords\r\n--b--\r\n"
)
FORMS = [
    FORM,
    FORM.replace(b"/a", b""),
    FORM.replace(b"Content-Type: application/octet-stream", b"Content-Type: multipart/mixed; boundary=c"),
    FORM.replace(b"Content-Type: application/octet-stream", b"Content-Transfer-Encoding: base64"),
    FORM.replace(b"Content-Type: application/octet-stream", b"Content-Length: 3"),
    FORM.replace(b"Content-Type: application/octet-stream", b"Content-Length: x"),
    FORM.replace(b"Content-Type", b"X" * 9000),
    FORM.replace(b"Content-Type: application/octet-stream\r\n", b"X: y\r\n" * 200),
    FORM.replace(b'"file"', b'"_charset_"'),
    FORM.replace(b"words", b"x" * 100_000),
]


# What aiohttp warns of in such a head is refused.
@pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionHeader")
@pytest.mark.filterwarnings("ignore::aiohttp.BadContentDispositionParam")
def test_forms_and_plain_bodies_of_files(running: Running) -> None:
    e2b = running.entered(e2b_speaking.bridging(running.fake))
    prime = running.entered(prime_speaking.bridging(running.fake))
    running.run(e2b.create())
    running.run(prime.create())

    @given(
        some.sampled_from(FORMS).flatmap(lambda form: some.just(form) | hostile.spoiled(form)),
        some.sampled_from(["b", '"b"', "", "x" * 100, "é"]),
    )
    def refuse(form: bytes, boundary: str) -> None:
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        sound(running.run(e2b.within("POST", "/files", data=form, **kind)), lambda told: "message" in told)
        sound(running.run(prime.within("POST", "upload?path=/a", form, **kind)), lambda told: "detail" in told)

    @given(hostile.spoiled(GZIP), some.sampled_from(["/a", "a", "", "/\x7f", "/a\x00b", "/é", "/" + "x" * 5000]))
    def write(data: bytes, path: str) -> None:
        kind = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
        address = str(URL("/files").with_query(path=path))
        sound(running.run(e2b.within("POST", address, data=data, **kind)), lambda told: "message" in told)

    refuse()
    write()


GZIP = bytes.fromhex("1f8b0800000000000003cbcf2f4a29e60200c9b1f3cb06000000")
PRIME_CREATE = {
    "name": "mine",
    "docker_image": "python:1",
    "idempotency_key": "k",
    "vm": True,
    "guaranteed": False,
    "start_command": {"executable": "true", "args": ["x"]},
    "cpu_cores": 1,
    "memory_gb": 1,
    "disk_size_gb": 5,
    "gpu_count": 0,
    "network_allowlist": ["a.org:443"],
    "timeout_minutes": 5,
    "idle_timeout_minutes": 5,
    "environment_vars": TAGS,
    "secrets": TAGS,
    "labels": ["a"],
    "team_id": "t",
    "arch": "amd64",
    "region": "eu",
}
PRIME_EXEC = {"command": "true", "working_dir": "/", "env": TAGS, "sandbox_id": None, "timeout": 5, "user": "root"}


def test_primes_control_plane(running: Running) -> None:
    prime = running.entered(prime_speaking.bridging(running.fake))
    name = running.run(prime.create())["id"]

    def is_refusal(told: Any) -> bool:
        return isinstance(told["detail"], str)

    one = f"/sandbox/{name}"

    @given(
        some.one_of(
            some.tuples(some.just(("POST", "/sandbox")), hostile.bodies(PRIME_CREATE)),
            some.tuples(
                some.just(("PUT", f"{one}/egress-policy")), hostile.bodies({"allowlist": ["a.org"], "denylist": None})
            ),
            some.tuples(
                some.just(("POST", f"{one}/expose")), hostile.bodies({"port": 80, "name": "x", "protocol": "HTTP"})
            ),
            some.tuples(some.just(("POST", "/sandbox/status:batchGet")), hostile.bodies({"sandbox_ids": [name]})),
            some.tuples(
                some.just(("POST", "/sandbox/checkpoints:batchGet")), hostile.bodies({"checkpoint_ids": ["a" * 32]})
            ),
            some.tuples(
                some.just(("DELETE", "/sandbox")),
                hostile.bodies({"sandbox_ids": ["sb-none"], "labels": [], "team_id": "t", "all_users": False}),
            ),
        )
    )
    def refuse(asked: tuple[tuple[str, str], Any]) -> None:
        (method, path), body = asked
        sound(running.run(prime.control(method, path, body)), is_refusal)

    @given(some.sampled_from(["page", "per_page", "labels", "status", "is_active", "later"]), some.text(max_size=30))
    def ask(name: str, value: str) -> None:
        sound(running.run(listed(prime, "/api/v1/sandbox", "Authorization", name, value)), is_refusal)

    @given(hostile.bodies(PRIME_EXEC))
    def run(body: Any) -> None:
        running.fake.processes.scripts.clear()
        sound(running.run(prime.within("POST", "exec", hostile.written(body))), lambda told: "detail" in told)

    refuse()
    ask()
    running.run(prime.create("another"))
    run()
    assert running.run(prime.control("GET", "/sandbox")).status == 200


RUN_CODE = {
    "code": "print(1)",
    "language": "python",
    "stdin": "x",
    "compile_timeout": 5,
    "run_timeout": 5,
    "files": {"a": "eA=="},
    "fetch_files": ["a"],
    "memory_limit_MB": 64,
}
RUN_JUPYTER = {"cells": ["1"], "kernel": "python3", "cell_timeout": 1, "total_timeout": 1, "files": {}}


def test_fusions_requests(running: Running) -> None:
    fusion = running.entered(fusion_speaking.speaking(running.fake))

    @given(hostile.bodies(RUN_CODE))
    def run(body: Any) -> None:
        answer = running.run(fusion.ask("POST", "/run_code", json=body))
        sound(answer, lambda told: bool(told["detail"]))
        assert answer.status in {200, 422}, answer

    @given(hostile.bodies({**RUN_JUPYTER, "later": 1}))
    def cells(body: Any) -> None:
        sound(running.run(fusion.ask("POST", "/run_jupyter", json={**body, "later": 1})), lambda told: True)

    @given(hostile.spoiled(hostile.written(RUN_CODE)))
    def bytes_(data: bytes) -> None:
        kind = {"Content-Type": "application/json"}
        sound(running.run(fusion.ask("POST", "/run_code", kind, data=data)), lambda told: bool(told["detail"]))

    run()
    cells()
    bytes_()
    assert {one["state"] for one in running.fake.sandboxes.values()} <= {"ended"}


DOCKER_CREATE = {
    "Image": "python:1",
    "Cmd": ["true"],
    "Entrypoint": [],
    "Env": ["A=1"],
    "WorkingDir": "/",
    "User": "root",
    "Tty": False,
    "Labels": TAGS,
    "ExposedPorts": {"80/tcp": {}},
    "StopSignal": "SIGTERM",
    "StopTimeout": 1,
    "HostConfig": {
        "Memory": 2**28,
        "NanoCpus": 10**9,
        "PidsLimit": 10,
        "NetworkMode": "default",
        "StorageOpt": {"size": "1G"},
        "PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "0"}]},
        "AutoRemove": False,
        "LogConfig": {"Type": ""},
        "RestartPolicy": {"Name": ""},
    },
    "NetworkingConfig": {"EndpointsConfig": {}},
}
DOCKER_EXEC = {"Cmd": ["true"], "AttachStdout": True, "Env": ["A=1"], "User": "root", "ConsoleSize": [24, 80]}


@contextmanager
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rollbox-") as folder:
        yield Path(folder)


def test_dockers_calls(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOX_API_KEY", API_KEY)
    with short() as folder:
        docker = running.entered(docker_speaking.speaking(running.fake, folder / "socket"))
        container = running.run(docker.started("sleep", "1000"))
        command = running.run(docker.exec_of(container, "true"))

        def is_refusal(told: Any) -> bool:
            return isinstance(told["message"], str)

        one = f"/containers/{container}"

        @given(
            some.one_of(
                some.tuples(some.just(("POST", "/containers/create")), hostile.bodies(DOCKER_CREATE)),
                some.tuples(some.just(("POST", f"{one}/exec")), hostile.bodies(DOCKER_EXEC)),
                some.tuples(
                    some.just(("POST", f"/exec/{command}/start")),
                    hostile.bodies({"Detach": True, "Tty": True, "ConsoleSize": [1, 1]}),
                ),
            )
        )
        def refuse(asked: tuple[tuple[str, str], Any]) -> None:
            (method, path), body = asked
            sound(running.run(docker.call(method, path, data=hostile.written(body))), is_refusal)

        @given(
            some.sampled_from(
                [
                    ("GET", "/containers/json", "filters"),
                    ("GET", "/containers/json", "limit"),
                    ("POST", f"{one}/resize", "w"),
                    ("POST", f"{one}/kill", "signal"),
                    ("POST", f"{one}/rename", "name"),
                    ("POST", "/containers/create", "name"),
                    ("GET", f"{one}/logs", "tail"),
                    ("GET", f"{one}/logs", "since"),
                    ("GET", f"{one}/archive", "path"),
                    ("POST", "/images/create", "fromImage"),
                    ("POST", "/build", "buildargs"),
                    ("POST", "/build", "t"),
                    ("GET", "/images/json", "filters"),
                    ("POST", "/commit", "repo"),
                ]
            ),
            some.text(max_size=30) | some.sampled_from(["[1]", '{"label": [1]}', '{"label": 1}', "9" * 4400, "-1"]),
        )
        def ask(call: tuple[str, str, str], value: str) -> None:
            method, path, name = call
            address = URL(path).with_query({name: value, **({"stdout": "1"} if "logs" in path else {})})
            sound(running.run(docker.call(method, str(address))), is_refusal)

        refuse()
        ask()
        assert running.run(docker.call("GET", "/_ping")).body == b"OK"
