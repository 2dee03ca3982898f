"""Egress, from inside a sandbox: what a policy allows works, nothing else does, and a switch holds at once."""

from __future__ import annotations

import asyncio
import ensurepip
import json
import os
import signal
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rollbox import Client, EgressPolicy, EgressRule, Sandbox
from rollbox.errors import PermissionDenied
from tests.support.command_line import rollbox
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, RELEASE, installed
from tests.support.outside import ALLOWED, ASKED, DNS, HOST, NAMES, OWN, REFUSED, SECRET, TURNING, WEB, outside
from tests.support.product import Kept, keeping
from tests.support.release import VALUES
from tests.support.stack import Product
from tests.support.waiting import until

ATTACKS = (Path(__file__).parent / "egress_attacks.py").read_text()
FOUND = Path("build/egress/attacks.json")
ON = (
    "egress.enabled=true",
    "egress.replicas=1",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    f"egress.dnsServers[0]={DNS}",
)
INDEX = EgressPolicy(mode="allow", allow=[EgressRule(host="index.test", ports=[WEB], name="index")])
GET = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=20).read().decode())"
# What a refusal says is in the body, which urllib has in its error.
REFUSAL = """
import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen(sys.argv[1], timeout=20)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
# What SOCKS5 answers, as a number.
BY_SOCKS = """
import socket, sys
with socket.create_connection(("127.0.0.1", 3128)) as proxy:
    proxy.sendall(b"\\x05\\x01\\x00")
    assert proxy.recv(2) == b"\\x05\\x00"
    host = sys.argv[1].encode()
    proxy.sendall(b"\\x05\\x01\\x00\\x03" + bytes([len(host)]) + host + b"\\x01\\xbb")
    print(proxy.recv(10)[1])
"""
# A host that would write on somebody's terminal.
ODD = """
import socket
with socket.create_connection(("127.0.0.1", 3128)) as proxy:
    proxy.sendall(b"CONNECT a\\x1b[31mb:443 HTTP/1.1\\r\\n\\r\\n")
    assert b" 403 " in proxy.recv(4096)
"""
# More hosts than are kept, as long as names are and longer; and one when these are told.
ASKS_MANY = """
import socket, time
def ask(host):
    with socket.create_connection(("127.0.0.1", 3128)) as proxy:
        proxy.sendall(f"CONNECT {host}:443 HTTP/1.1\\r\\n\\r\\n".encode())
        assert b" 403 " in proxy.recv(4096)
for n in range(1000):
    ask(f"{n}-{'x' * 300}")
time.sleep(1)
ask("last.test")
"""
# Says when it has begun, and how it ended.
READ = """
import sys, urllib.request as u
answer = u.urlopen(sys.argv[1], timeout=60)
print(answer.readline(), flush=True)
try:
    while answer.readline(): pass
    print("ended")
except OSError as error:
    print("cut")
"""
# As many connections as the proxy takes, and more: heads that never end, tunnels that nobody reads, and new ones.
FLOOD = """
import os, socket, sys, threading, time
from urllib.parse import urlsplit
port, url = int(os.environ["HTTP_PROXY"].rpartition(":")[2]), urlsplit(sys.argv[1])
def sent(text):
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(text.encode())
    return sock
held = []
def hold(text, count):
    for _ in range(count):
        try:
            held.append(sent(text))
        except OSError:
            time.sleep(0.01)
hold("GET http://index.test/ HTTP/1.1\\r\\nX: ", 150)
hold(f"GET {sys.argv[1]} HTTP/1.1\\r\\nHost: {url.netloc}\\r\\n\\r\\n", 100)
hold(f"CONNECT {url.netloc} HTTP/1.1\\r\\n\\r\\nGET /endless HTTP/1.0\\r\\n\\r\\n", 100)
print("flooding", len(held), flush=True)
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        sent("CONNECT index.test:1 HTTP/1.1\\r\\n\\r\\n").close()
    except OSError:
        pass
"""
OWN_SERVER = """
import http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"mine")
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
with Server(("::", 0), Handler) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""
# Asks by the proxy, raw, since libraries write addresses in one notation; then by the variables.
OWN_ASK = """
import os, socket, sys, urllib.request
port, *hosts = sys.argv[1:]
own = socket.gethostname()
hosts += [own, own.upper(), own + ".some.domain", socket.gethostbyname(own)]
proxy = os.environ["HTTP_PROXY"].removeprefix("http://").partition(":")
def said(request, *more):
    with socket.create_connection((proxy[0], int(proxy[2])), timeout=20) as sock:
        sock.sendall(request.encode())
        got = b""
        for one in more:
            got += sock.recv(4096)
            sock.sendall(one.encode())
        while piece := sock.recv(4096):
            got += piece
        return got.decode()
for host in hosts:
    absolute = said(f"GET http://{host}:{port}/ HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n")
    tunnel = said(f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n", f"GET / HTTP/1.0\\r\\n\\r\\n")
    print(host, absolute.splitlines()[0].split()[1], absolute[-4:], tunnel.split()[1], tunnel[-4:])
# By SOCKS5 with the host as a name, as socks5h does, and by version 4A: each answer's code before the server's.
def socks(host):
    name = host.strip("[]").encode()
    at = int(port).to_bytes(2, "big")
    five = bytes([5, 1, 0, 3, len(name)]) + name + at
    four = b"\\4\\1" + at + b"\\0\\0\\0\\1me\\0" + name + b"\\0"
    for asked, greeting, length in ((five, b"\\5\\1\\0", 10), (four, b"", 8)):
        with socket.create_connection((proxy[0], int(proxy[2])), timeout=20) as sock:
            file = sock.makefile("rb")
            sock.sendall(greeting)
            file.read(len(greeting) and 2)
            sock.sendall(asked)
            code = file.read(length)[1]
            sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            yield f"{code} {file.read().decode()[-4:]}"
for host in hosts:
    print(host, *socks(host))
for host in ("localhost", "127.0.0.1", "0.0.0.0", own):
    print(host, "directly", urllib.request.urlopen(f"http://{host}:{port}/", timeout=20).read().decode())
"""
OWN_HOSTS = (
    "localhost LOCALHOST localhost. app.localhost 127.0.0.1 127.8.9.10 0.0.0.0 [::1] [::] "
    "127.1 0 2130706433 0x7f000001 0177.0.0.1 [::ffff:127.0.0.1] [0:0:0:0:0:0:0:1]"
)
pytestmark = pytest.mark.egress


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is outside: a file, and an index with one package."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "hello").write_text("hello from outside\n")
    (folder / "simple" / "tiny").mkdir(parents=True)
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / "simple" / "tiny" / name, "w") as wheel:
        wheel.writestr("tiny.py", "SIZE = 'small'\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            "tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\n"
        )
    with outside(folder):
        yield


if os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster":

    @pytest.fixture(scope="module")
    def stack() -> Iterator[Product]:
        """A release of its own: that of all other tests has no egress, as by default."""
        with asyncio.Runner() as runner:
            installing = installed(f"{RELEASE}-egress", *VALUES, *BESIDE_ANOTHER, *ON)
            yield runner.run(installing.__aenter__())
            runner.run(installing.__aexit__(None, None, None))

    @pytest.fixture(scope="module")
    def kept(stack: Product) -> Iterator[Kept]:
        yield from keeping(stack)


@pytest.fixture
async def offline(shared: Sandbox) -> AsyncIterator[Sandbox]:
    """The shared sandbox, offline before and after."""
    await shared.egress("offline")
    yield shared
    await shared.egress("offline")


async def _get(sandbox: Sandbox, url: str) -> str:
    return (await sandbox.exec(["python3", "-c", GET, url], timeout=60)).stdout


async def _asked() -> set[str]:
    """The names that the resolver of egress was asked for so far."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{ALLOWED}:{ASKED}/") as answer:
        return {*(await answer.text()).split()}


async def _refusal(sandbox: Sandbox, url: str) -> tuple[int, dict[str, object]]:
    status, _, body = (await sandbox.exec(["python3", "-c", REFUSAL, url], check=True, timeout=60)).stdout.partition(
        " "
    )
    problem: dict[str, object] = json.loads(body)
    return int(status), problem


async def test_a_new_sandbox_is_offline_and_a_refusal_says_what_to_change(client: Client) -> None:
    async with await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi") as sandbox:
        assert (await sandbox.egress()).policy == "offline"
        status, problem = await _refusal(sandbox, f"http://index.test:{WEB}/hello")
    assert (status, problem["code"]) == (403, "egress_denied")
    assert "offline" in str(problem["detail"])


async def test_what_a_create_asks_for_is_in_force_when_it_returns(client: Client) -> None:
    async with await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi", egress=INDEX) as sandbox:
        assert await _get(sandbox, f"http://index.test:{WEB}/hello") == "hello from outside\n"


async def test_a_program_reaches_its_own_server_in_every_notation_and_by_the_proxy_too(offline: Sandbox) -> None:
    async with await offline.spawn(["python3", "-c", OWN_SERVER]) as server:
        port = (await anext(server.stdout.lines())).strip()
        for policy in ("offline", INDEX):
            await offline.egress(policy)
            told = await offline.exec(["python3", "-c", OWN_ASK, port, *OWN_HOSTS.split()], check=True, timeout=120)
            wrong = [
                line
                for line in told.stdout.splitlines()
                if not line.endswith((" 200 mine 200 mine", " 0 mine 90 mine", " directly mine"))
            ]
            assert wrong == []
            assert len(told.stdout.splitlines()) == 2 * (len(OWN_HOSTS.split()) + 4) + 4
        await server.signal(signal.SIGKILL)
    status, problem = await _refusal(offline, "http://127.1:9/")
    assert (status, problem["code"]) == (502, "port_unreachable")
    # Nothing of it is an attempt to reach the network.
    hosts = {one.host for one in await offline.egress_log()}
    assert not hosts & {*OWN_HOSTS.split(), offline.id, "::1"}


async def test_a_switch_holds_from_its_answer_on(offline: Sandbox) -> None:
    for _ in range(5):
        assert (await offline.egress(INDEX)).applied
        assert await _get(offline, f"http://index.test:{WEB}/hello") == "hello from outside\n"
        assert (await offline.egress("offline")).applied
        assert (await _refusal(offline, f"http://index.test:{WEB}/hello"))[0] == 403


async def test_a_package_is_installed_under_a_policy_that_allows_its_index_and_not_without(offline: Sandbox) -> None:
    index = f"--index-url http://index.test:{WEB}/simple --trusted-host index.test"
    # The image has no pip: that of this machine, as it is packed, is a program.
    (packed,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    await offline.files.write("/tmp/pip.whl", await asyncio.to_thread(packed.read_bytes))
    install = f"python3 /tmp/pip.whl/pip install --no-cache-dir --retries 0 --target /tmp/there {index} tiny"
    refused = await offline.exec(install, timeout=120)
    assert not refused.ok
    await offline.egress(INDEX)
    await offline.exec(install, check=True, timeout=120)
    said = await offline.exec("PYTHONPATH=/tmp/there python3 -c 'import tiny; print(tiny.SIZE)'", check=True)
    assert said.stdout == "small\n"


async def test_a_switch_cuts_what_it_does_not_allow_any_more(offline: Sandbox) -> None:
    await offline.egress(INDEX)
    async with await offline.spawn(["python3", "-c", READ, f"http://index.test:{WEB}/endless"]) as process:
        lines = aiter(process.stdout)
        assert await anext(lines)
        assert (await offline.egress("offline")).cut == 1
        assert "cut" in "".join([str(line) async for line in lines])


async def test_forges_are_refused_by_name_and_nobody_is_asked_for_them(offline: Sandbox) -> None:
    await offline.egress("swe-eval")
    status, problem = await _refusal(offline, "http://raw.githubusercontent.com/a/b")
    assert status == 403
    assert "github" in json.dumps(problem)
    assert "raw.githubusercontent.com" not in await _asked()


async def test_every_attempt_is_on_record(offline: Sandbox) -> None:
    await offline.egress(INDEX)
    await _get(offline, f"http://index.test:{WEB}/hello")
    await _refusal(offline, f"http://{REFUSED}:{WEB}/")

    async def told() -> bool:
        seen = {(one.host, one.verdict) for one in await offline.egress_log()}
        return {("index.test", "allowed"), (REFUSED, "denied_name")} <= seen

    await until(told)


async def test_what_was_refused_is_shown_beside_the_command_that_ran_then(stack: Product, offline: Sandbox) -> None:
    """A program that says nothing of a refusal (uv, for one) leaves it to these."""
    await offline.egress(INDEX)
    await _is_shown_beside_its_command(stack, offline)


async def test_what_a_sandbox_refuses_since_its_birth_is_shown_beside_the_command_too(
    stack: Product, client: Client
) -> None:
    """No egress replica knows it: it is asked itself."""
    async with await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi") as sandbox:
        assert (await sandbox.egress()).link == "none"
        assert await sandbox.egress_log() == []
        await _is_shown_beside_its_command(stack, sandbox)
        for url in ("https://github.com/a", "http://pypi.org:8080/simple/"):
            await sandbox.exec(["python3", "-c", GET, url])
        assert (await sandbox.exec(["python3", "-c", BY_SOCKS, "files.example"], check=True)).stdout == "2\n"
        await sandbox.exec(["python3", "-c", ODD], check=True)
        expected = {
            ("github.com", 443, "connect"),
            ("pypi.org", 8080, "http"),
            ("files.example", 443, "socks5"),
            ("a?[31mb", 443, "connect"),
        }

        async def told() -> bool:
            found = await sandbox.egress_log()
            assert {(one.verdict, one.policy) for one in found} == {("denied_name", "offline")}
            return expected <= {(one.host, one.port, one.protocol) for one in found}

        await until(told)
        # With a policy both are in one log.
        await sandbox.egress(INDEX)
        await _get(sandbox, f"http://index.test:{WEB}/hello")

        async def both() -> bool:
            return {"github.com", "index.test"} <= {one.host for one in await sandbox.egress_log()}

        await until(both)


async def test_a_sandbox_that_asks_for_ever_keeps_a_bounded_record(client: Client) -> None:
    async with await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi") as sandbox:
        await sandbox.exec(["python3", "-c", ASKS_MANY], check=True, timeout=120)

        async def told() -> bool:
            return "last.test" in {one.host for one in await sandbox.egress_log()}

        await until(told)
        found = await sandbox.egress_log()
        assert 1 < len(found) <= 256
        assert max(len(one.host) for one in found) == 255


async def _is_shown_beside_its_command(stack: Product, offline: Sandbox) -> None:
    early, asks = ["echo", "early"], ["python3", "-c", GET, "http://beside.test/"]
    await offline.exec(early)
    # Longer than attempts are told as one, with what clocks may differ.
    await offline.exec(["sleep", "4"])
    assert not (await offline.exec(asks)).ok
    ended = {one.argv[1]: one.ended_at_ms for one in await offline.processes.list() if one.argv in (early, asks)}
    first_ms, last_ms = ended["early"], ended["-c"]
    assert first_ms is not None
    assert last_ms is not None
    assert first_ms < last_ms

    async def told() -> Any:
        _, out, err = await rollbox(stack, "egress", "log", offline.id, "--denied", "--json")
        assert out, err
        return next((one for one in json.loads(out) if one["host"] == "beside.test"), None)

    ran = [one["argv"] for one in (await until(told))["commands"]]
    assert (asks in ran, early in ran) == (True, False)
    for words in (("egress", "log", offline.id, "--denied"), ("why", offline.id)):
        _, out, err = await rollbox(stack, *words)
        (line,) = [one for one in out.decode().splitlines() if "beside.test:80" in one]
        assert "python3 -c" in line, err
        assert "echo early" not in line


async def test_the_proxys_port_is_none_that_is_reached_from_outside(offline: Sandbox) -> None:
    with pytest.raises(PermissionDenied, match="the platform's own"):
        await offline.ports.wait(3128, timeout=5)
    with pytest.raises(PermissionDenied, match="the platform's own"):
        await offline.ports.expose(3128, public=True)
    # As `rollbox ports forward` does.
    with pytest.raises(PermissionDenied, match="the platform's own"):
        await offline.ports.connect_tcp(3128)


async def test_a_sandbox_that_floods_holds_no_other_one_up(client: Client) -> None:
    async with (
        await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi", egress=INDEX) as flooding,
        await client.create(IMAGE, cpu=(0.02, 2), memory="256Mi", egress=INDEX) as neighbour,
    ):
        async with await flooding.spawn(["python3", "-c", FLOOD, f"http://index.test:{WEB}/endless"]) as flood:
            lines = aiter(flood.stdout)
            assert "flooding" in str(await anext(lines))
            for _ in range(10):
                assert await _get(neighbour, f"http://index.test:{WEB}/hello") == "hello from outside\n"
            await flood.signal(signal.SIGKILL)

        # What it held is given back: it works as before itself.
        async def works() -> bool:
            return (await flooding.exec(["python3", "-c", GET, f"http://index.test:{WEB}/hello"], timeout=60)).ok

        await until(works)


async def test_doctor_has_a_sandbox_try_what_must_be_refused_and_what_must_work(stack: Product) -> None:
    found = await _doctor(stack, f"index.test:{WEB}")
    assert [one for one in found.values() if not one["ok"]] == []
    wanted = {"direct connection", "name look-up", "refusal", "metadata service", "allowed host"}
    assert {f"egress: {one}" for one in wanted} <= found.keys()
    absent = (await _doctor(stack, "nowhere.test:443"))["egress: allowed host"]
    assert not absent["ok"]
    assert "the name has no address" in absent["detail"]
    assert "egress.dnsServers" in absent["fix"]


async def _doctor(stack: Product, reach: str) -> dict[str, dict[str, Any]]:
    _, out, err = await rollbox(stack, "doctor", "--image", IMAGE, "--reach", reach, "--json")
    assert out, err
    return {one["name"]: one for one in json.loads(out)["checks"] if one["name"].startswith("egress")}


def _note(found: dict[str, bool]) -> None:
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    FOUND.write_text(json.dumps({"tried": len(found), "succeeded": sum(found.values()), "attacks": found}, indent=1))


async def test_what_attacks_reach(offline: Sandbox) -> None:
    # Names that lead where nothing may are allowed here, so that the addresses are what is refused.
    lures = {*NAMES, *TURNING} - {"index.test"}
    names = [EgressRule(host=name, ports=[WEB, 80, OWN], name="lure") for name in sorted(lures)]
    index = EgressRule(host="index.test", ports=[WEB, 443], name="index")
    # Of other tests, under rules of their own.
    before = await _asked()
    await offline.egress(EgressPolicy(mode="allow", allow=[index, *names]))
    await offline.files.write("/tmp/attacks.py", ATTACKS)
    command = ["python3", "/tmp/attacks.py", SECRET, ALLOWED, REFUSED, HOST]
    told: dict[str, dict[str, bool]] = json.loads((await offline.exec(command, check=True, timeout=400)).stdout)
    found = told["attacks"]
    _note(found)
    assert [way for way, works in told["ways"].items() if not works] == []
    assert await _get(offline, f"http://index.test:{WEB}/hello") == "hello from outside\n"
    assert [name for name, succeeded in found.items() if succeeded] == []
    # A name that no rule mentions would be a way out, were it resolved.
    assert await _asked() == {*NAMES, *TURNING} | before
