"""Programs that fetch packages, in a sandbox, each against a real index over TLS: what works, and how it is refused.

What was seen is in `build/egress/tools-*.json`; the guide's table is made of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import EgressPolicy, EgressRule, ExecResult, Sandbox
from tests.support.images import REGISTRY
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, RELEASE, installed
from tests.support.outside import ALLOWED, DNS, INDEXES, outside
from tests.support.product import Kept, keeping
from tests.support.release import VALUES
from tests.support.stack import Product
from tests.support.tools import contents, server
from tests.support.tools.hosts import CRATES, DEBIAN, FORGE, PYPI, PYPI_FILES
from tests.support.tools.programs import PROGRAMS, SYSTEM, TRUST, Program

pytestmark = pytest.mark.tools
ON_CLUSTER = os.environ.get("ROLLBOX_TEST_PRODUCT") == "cluster"
FOUND = Path(f"build/egress/tools-{'cluster' if ON_CLUSTER else 'engine'}.json")
BUILD = Path(server.__file__).with_name("build.sh")
ON = (
    "egress.enabled=true",
    "egress.replicas=1",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    f"egress.allowedPrivateCidrs[1]={INDEXES}/32",
    f"egress.dnsServers[0]={DNS}",
)
# Programs that read neither the system's certificates nor what is said on their command line.
TRUSTING = {
    "SSL_CERT_FILE": SYSTEM,
    "REQUESTS_CA_BUNDLE": SYSTEM,
    "NODE_EXTRA_CA_CERTS": f"{TRUST}/ca.crt",
    "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={TRUST}/ca.p12"
    f" -Djavax.net.ssl.trustStorePassword={contents.STORE_PASSWORD}",
}
POLICIES: dict[str, str | EgressPolicy] = {
    "packages": "packages",
    "forge": EgressPolicy(mode="allow", allow=[EgressRule(host=FORGE, ports=[22, 443], name="forge")]),
    "files": EgressPolicy(mode="allow", allow=[EgressRule(host=PYPI_FILES, name="files")]),
}
VERSION = re.compile(r"\d+\.\d+[.\w]*")
# Times a number of calls, in ms.
TIMES = """
import json, socket, sys, time
def connect(at):
    with socket.create_connection(("127.0.0.1", 3128)) as sock:
        sock.sendall(b"CONNECT %d.test:443 HTTP/1.1\\r\\nHost: %d.test:443\\r\\n\\r\\n" % (at, at))
        assert b" 403 " in sock.recv(4096)
def lookup(at):
    try:
        socket.getaddrinfo(f"{at}.test", 443)
    except socket.gaierror:
        pass
    else:
        raise AssertionError("it was found")
took = []
for at in range(50):
    began = time.monotonic()
    {"connect": connect, "lookup": lookup}[sys.argv[1]](at)
    took.append((time.monotonic() - began) * 1000)
print(json.dumps(took))
"""


@pytest.fixture(scope="module", autouse=True)
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is outside: an index with one package of each kind; its folder."""
    folder = tmp_path_factory.mktemp("indexes")
    (folder / "web").mkdir()
    contents.write(folder)
    with outside(folder / "web", sys.executable, server.__file__, INDEXES, str(folder)):
        yield folder


if ON_CLUSTER:

    @pytest.fixture(scope="module")
    def stack() -> Iterator[Product]:
        """A release of its own: that of all other tests has no egress, as by default."""
        with asyncio.Runner() as runner:
            installing = installed(f"{RELEASE}-tools", *VALUES, *BESIDE_ANOTHER, *ONE_OF_EACH, *ON)
            yield runner.run(installing.__aenter__())
            runner.run(installing.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def kept(stack: Product) -> Iterator[Kept]:
    made = subprocess.run([BUILD, *([REGISTRY] if ON_CLUSTER else [])], check=True, stdout=subprocess.PIPE, text=True)
    yield from keeping(stack, image=made.stdout.strip(), memory="1Gi", env=TRUSTING)


@pytest.fixture
async def prepared(shared: Sandbox, indexes: Path) -> AsyncIterator[Sandbox]:
    """The shared sandbox, which trusts the servers of the indexes; offline before and after."""
    await shared.egress("offline")
    if not (await shared.exec(["test", "-e", TRUST])).ok:
        for name in ("tls/ca.crt", "tls/ca.p12", "ssh/key"):
            await shared.files.write(f"{TRUST}/{Path(name).name}", (indexes / name).read_bytes())
        await shared.exec(f"chmod 600 {TRUST}/key && cat {TRUST}/ca.crt >> {SYSTEM}", check=True)
    yield shared
    await shared.egress("offline")


async def _ran(sandbox: Sandbox, command: str, settings: str = "") -> ExecResult:
    """Of a command in an empty folder; whether it succeeds or not, it ends by itself."""
    begin = f"rm -rf /tmp/work; mkdir /tmp/work; cd /tmp/work; export {settings}\n" if settings else ""
    begin = begin or "rm -rf /tmp/work; mkdir /tmp/work; cd /tmp/work\n"
    ran = await sandbox.exec(["bash", "-c", begin + command], timeout=120)
    assert ran.end == "exited", (command, ran.stdout, ran.stderr)
    return ran


def _shown(ran: ExecResult, policy: str) -> str:
    """What it said of its refusal; programs break lines."""
    said = " ".join(f"{ran.stdout} {ran.stderr}".split())
    return "sentence" if f"policy {policy}" in said else "403" if "403" in said else ""


def _note(name: str, row: dict[str, Any]) -> None:
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    table = json.loads(FOUND.read_text()) if FOUND.is_file() else {}
    FOUND.write_text(json.dumps({**table, name: row}, indent=1))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
async def test_a_program_fetches_what_is_allowed_and_shows_what_is_refused(prepared: Sandbox, program: Program) -> None:
    if not (await prepared.exec(["bash", "-c", f"command -v {program.start.split()[0]}"])).ok:
        pytest.skip("the machine that made the image has no such program")
    await prepared.egress(POLICIES[program.policy])
    fetched = await _ran(prepared, program.fetch)
    assert fetched.ok == (program.how != "nothing"), (fetched.stdout, fetched.stderr)
    started = await _ran(prepared, program.start)
    row: dict[str, Any] = {"how": program.how, "fetched_ms": fetched.run_ms, "start_ms": started.run_ms}
    row["version"] = VERSION.search(f"{started.stdout} {started.stderr}")[0]  # type: ignore[index]
    if program.plain:
        plain = await _ran(prepared, program.plain)
        assert not plain.ok
        row["plain_ms"] = plain.run_ms
    for policy in program.refused:
        await prepared.egress(policy)
        refused = await _ran(prepared, program.fetch, program.at_once)
        row |= {"shows": _shown(refused, policy), "said": refused.stderr[-600:], "refused_ms": refused.run_ms}
        _note(program.name, row)
        assert not refused.ok
        assert row["shows"] == program.shows, refused.stderr
    if program.at_once:
        _note(program.name, {**row, "by_itself_ms": (await _ran(prepared, program.fetch)).run_ms})


@pytest.mark.parametrize(("scheme", "code"), [("https", 0), ("http", 100)])
async def test_apt_get_update_is_content_with_an_https_repository_that_is_refused(
    prepared: Sandbox, scheme: str, code: int
) -> None:
    """As it is by itself: only a warning, so an image's `apt-get update && ...` goes on with old lists, or none."""
    await prepared.egress("offline")
    source = f"echo 'deb [trusted=yes] {scheme}://{DEBIAN}/debian ./' > own.list; mkdir -p lists/partial; "
    options = "-o Dir::Etc::sourcelist=$PWD/own.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists"
    ran = await _ran(prepared, f"{source}apt-get {options} -o APT::Sandbox::User=root update")
    assert ran.exit_code == code, (ran.stdout, ran.stderr)
    assert _shown(ran, "offline") == "sentence"
    asked = await _ran(
        prepared, f"{source}apt-get {options} -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any update"
    )
    assert asked.exit_code == 100, (asked.stdout, asked.stderr)


async def test_over_plain_http_curl_shows_the_problem_and_succeeds(prepared: Sandbox) -> None:
    await prepared.egress("offline")
    ran = await _ran(prepared, f"curl -sS http://{PYPI_FILES}/hello")
    assert (ran.exit_code, json.loads(ran.stdout)["code"]) == (0, "egress_denied")
    assert (await _ran(prepared, f"curl -sSf http://{PYPI_FILES}/hello")).exit_code == 22


@pytest.mark.parametrize("call", ["connect", "lookup"])
async def test_a_refusal_and_a_lookup_are_answered_at_once(prepared: Sandbox, call: str) -> None:
    took = json.loads((await prepared.exec(["python3", "-c", TIMES, call], check=True, timeout=120)).stdout)
    _note(f"({call})", {"p50_ms": statistics.median(took), "max_ms": max(took)})
    # A resolver that does not answer costs five seconds for each name.
    assert max(took) < 5000


def _asked(host: str, through: str) -> str:
    """A request whose TLS names `host`, by a tunnel to another one."""
    return f"curl -sS --connect-to {host}:443:{through}:443 https://{host}/hello"


async def test_tls_is_between_program_and_server_and_names_the_host_of_its_tunnel(prepared: Sandbox) -> None:
    await prepared.egress(POLICIES["files"])
    own = await _ran(prepared, _asked(PYPI_FILES, PYPI_FILES))
    assert own.stdout == "hello from outside\n"
    fronted = await _ran(prepared, _asked(FORGE, PYPI_FILES))
    assert not fronted.ok
    assert "alert access denied" in fronted.stderr, fronted.stderr
    # Without rules for names the same request arrives: what refuses it is the rule.
    await prepared.egress(EgressPolicy(mode="open"))
    assert (await _ran(prepared, _asked(FORGE, PYPI_FILES))).stdout == "hello from outside\n"


async def test_a_package_index_leads_to_no_host_that_the_policy_does_not_name(prepared: Sandbox) -> None:
    """`packages` allows an index and its files; with the index alone, the files that it names are refused."""
    await prepared.egress(EgressPolicy(mode="allow", allow=[EgressRule(host=PYPI), EgressRule(host=CRATES)]))
    refused = await _ran(prepared, "pip install --no-cache-dir --target there tiny", "PIP_RETRIES=0")
    assert not refused.ok
    assert PYPI_FILES in refused.stderr
