"""The files by which programs know names tell of the sandbox, and nothing of the machine that it is on."""

from __future__ import annotations

import socket
from pathlib import Path

from rollbox import Sandbox
from tests.support.images import AGAINST_CLUSTER

# Of the machine that the tests run on.
RESOLVER = Path("/etc/resolv.conf").read_text()
LOOPBACK = {"localhost", "ip6-localhost", "ip6-loopback"}
# A kubelet writes these for every pod.
OF_PODS = {"ip6-localnet", "ip6-mcastprefix", "ip6-allnodes", "ip6-allrouters"}


async def _lines(sandbox: Sandbox, name: str) -> list[list[str]]:
    text = (await sandbox.exec(["cat", f"/etc/{name}"], check=True)).stdout
    return [words for line in text.splitlines() if (words := line.partition("#")[0].split())]


async def test_the_files_of_names_tell_the_sandbox_alone(shared: Sandbox) -> None:
    hosts = await _lines(shared, "hosts")
    names = {name for _, *names in hosts for name in names}
    own = {name for name in names if name.split(".")[0] == shared.id}
    assert own, hosts
    assert names - own - OF_PODS <= LOOPBACK, hosts
    assert await _lines(shared, "hostname") == [[shared.id]]
    assert (await shared.exec(["uname", "-n"], check=True)).stdout.strip() == shared.id
    resolver = await _lines(shared, "resolv.conf")
    assert [words for words in resolver if words[0] == "nameserver"] == [["nameserver", "127.0.0.1"]]
    assert not {words[0] for words in resolver} & {"search", "domain"}
    if not AGAINST_CLUSTER:
        # The machine of an engine is this one.
        told = await shared.exec(
            "cat /etc/hosts /etc/resolv.conf /etc/hostname /run/.containerenv 2>/dev/null; hostname"
        )
        assert socket.gethostname() not in told.stdout.split()
        theirs = set(RESOLVER.split()) - {"nameserver", "options"}
        assert not theirs & set(told.stdout.split())


async def test_the_sandboxs_own_name_is_its_own_address(shared: Sandbox) -> None:
    ask = "import socket; socket.create_server(('', 0)); print(socket.gethostbyname(socket.gethostname()))"
    address = (await shared.exec(["python3", "-c", ask], check=True)).stdout.strip()
    bind = f"import socket; print(socket.create_server(('{address}', 0)).getsockname()[0])"
    assert (await shared.exec(["python3", "-c", bind], check=True)).stdout.strip() == address


async def test_commands_may_add_names_of_their_own(shared: Sandbox) -> None:
    await shared.exec("echo 127.0.0.1 app.test >> /etc/hosts", check=True)
    ask = "import socket; print(socket.gethostbyname('app.test'))"
    assert (await shared.exec(["python3", "-c", ask], check=True)).stdout.strip() == "127.0.0.1"
    await shared.exec("grep -v app.test /etc/hosts > /tmp/hosts; cat /tmp/hosts > /etc/hosts", check=True)
