"""Programs that fetch packages: how each is asked for one, what it needs for that, and how it shows a refusal.

Every command runs in an empty folder, in a sandbox of the image of `build.sh`, and succeeds only if the package came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.support.tools.hosts import DEBIAN, FORGE, PYPI_FILES

# Where the test puts the certificate of the servers, in two forms, and the key for SSH.
TRUST: Final = "/tmp/trust"
SYSTEM: Final = "/etc/ssl/certs/ca-certificates.crt"
_URL: Final = f"https://{PYPI_FILES}/hello"
_JVM: Final = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128"
_SSH: Final = f"ssh -i {TRUST}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_THROUGH: Final = "-o ProxyCommand='nc -X connect -x 127.0.0.1:3128 %h %p'"


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: as the docs have it.
        fetch: what fetches a package with it, with the setting that it needs.
        how: what it finds the proxy by: "variables", "platform" (what else the platform sets), a setting, or "nothing":
            it reaches nothing, whatever is allowed.
        start: the same program, doing nothing but to tell its version.
        plain: the same as `fetch` without the setting: fails, whatever is allowed.
        at_once: variables with which it does not try again by itself what is refused; pip tells only of one try more.
        shows: what it writes of a refusal: "sentence", or "403", or "" (that it failed).
        policy: under which it works.
        refused: presets under which it does not.
    """

    name: str
    fetch: str
    how: str = "variables"
    start: str = ""
    plain: str = ""
    at_once: str = ""
    shows: str = "sentence"
    policy: str = "packages"
    refused: tuple[str, ...] = ("offline",)


def _apt(scheme: str) -> str:
    source = f"deb [trusted=yes] {scheme}://{DEBIAN}/debian ./"
    return f"""
dpkg --purge tiny 2>/dev/null; mkdir -p lists/partial archives/partial
echo '{source}' > own.list
set -- -qq -o Dir::Etc::sourcelist=$PWD/own.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists \
  -o Dir::Cache::archives=$PWD/archives -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any
apt-get "$@" update && apt-get "$@" install -y tiny >/dev/null && grep -q small /etc/tiny"""


def _python(how: str) -> str:
    return f"""cat > get.py <<'PROGRAM'
import asyncio, sys, urllib.request
url = sys.argv[1]
{how}
PROGRAM
python3 get.py {_URL} | grep -q hello"""


def _aiohttp(options: str) -> str:
    return _python(
        f"""
import aiohttp
async def main():
    async with aiohttp.ClientSession({options}) as session, session.get(url) as answer:
        print(await answer.text())
asyncio.run(main())"""
    )


def _version(module: str) -> str:
    return f"python3 -c 'import {module}; print({module}.__version__)'"


def _node(program: str) -> str:
    return (
        f"""{program} -e 'fetch("{_URL}").then(async (answer) => console.log(await answer.text()))' | grep -q hello"""
    )


_CARGO = """
printf '[package]\\nname = "x"\\nversion = "0.1.0"\\nedition = "2021"\\n[dependencies]\\ntiny = "1"\\n' > Cargo.toml
mkdir -p src && touch src/lib.rs
CARGO_HOME=$PWD/home cargo fetch && ls home/registry/src/*/tiny-1.0.0/Cargo.toml >/dev/null"""
_GO = """
printf 'module x\\ngo 1.20\\nrequire example.test/tiny v1.0.0\\n' > go.mod
export GOPATH=$PWD/go GOFLAGS='-mod=mod -modcacherw' GOSUMDB=off GOTELEMETRY=off
go mod download && ls go/pkg/mod/example.test/tiny@v1.0.0/a.go >/dev/null"""
_POM = """
cat > pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion>
<parent><groupId>test.tiny</groupId><artifactId>parent</artifactId><version>1</version></parent>
<artifactId>x</artifactId><packaging>pom</packaging>
<build><extensions><extension>
<groupId>test.tiny</groupId><artifactId>extension</artifactId><version>1</version>
</extension></extensions></build></project>
POM
"""
_MAVEN = (
    """mvn -q -B -Dmaven.repo.local=$PWD/repo validate && ls repo/test/tiny/extension/1/extension-1.jar >/dev/null"""
)
_HTTP_CLIENT: Final = """
        var asked = java.net.http.HttpRequest.newBuilder(URI.create(words[0])).build();
        System.out.print(java.net.http.HttpClient.newHttpClient()
            .send(asked, java.net.http.HttpResponse.BodyHandlers.ofString()).body());"""
_URL_CONNECTION: Final = """
        System.out.print(new String(URI.create(words[0]).toURL().openStream().readAllBytes()));"""


def _java(get: str) -> str:
    return f"""
cat > Get.java <<'PROGRAM'
import java.net.URI;
class Get {{
    public static void main(String[] words) throws Exception {{{get}
    }}
}}
PROGRAM
java $SETTING Get.java {_URL} | grep -q hello"""


def _of_java(name: str, get: str, shows: str) -> Program:
    return Program(
        name,
        f"SETTING='{_JVM}'{_java(get)}",
        "-Dhttps.proxyHost",
        "java -version",
        f"SETTING={_java(get)}",
        shows=shows,
    )


_FORGES = ("offline", "packages", "swe-eval")

PROGRAMS: Final = (
    Program(
        "pip",
        "pip install --no-cache-dir --target there tiny && ls there/tiny.py",
        start="pip --version",
        at_once="PIP_RETRIES=1",
    ),
    Program(
        "uv",
        "uv pip install -q --no-cache --target there tiny && ls there/tiny.py",
        start="uv --version",
        at_once="UV_HTTP_RETRIES=0",
        shows="",
    ),
    Program(
        "npm",
        "npm install --no-audit --no-fund --cache $PWD/cache tiny && ls node_modules/tiny/index.js",
        start="npm --version",
        at_once="npm_config_fetch_retries=0",
    ),
    Program("apt, over http", _apt("http"), start="apt-get --version"),
    Program("apt, over https", _apt("https"), start="apt-get --version"),
    Program("cargo", _CARGO, start="cargo --version", at_once="CARGO_NET_RETRY=0", shows="403"),
    Program("go", _GO, start="go version"),
    Program("maven", _POM + _MAVEN, "platform", "mvn -v", f"{_POM}unset MAVEN_OPTS; {_MAVEN}"),
    Program(
        "git, over https",
        f"git clone -q https://{FORGE}/tiny there && ls there/size",
        start="git --version",
        shows="403",
        policy="forge",
        refused=_FORGES,
    ),
    Program(
        "git, over ssh",
        f'export GIT_SSH_COMMAND="{_SSH} {_THROUGH}"; git clone -q ssh://root@{FORGE}/tiny there && ls there/size',
        "GIT_SSH_COMMAND",
        "git --version",
        f'export GIT_SSH_COMMAND="{_SSH}"; git clone -q ssh://root@{FORGE}/tiny there',
        shows="sentence",
        policy="forge",
        refused=_FORGES,
    ),
    Program("curl", f"curl -sS {_URL} | grep -q hello", start="curl --version", shows="403"),
    Program("wget", f"wget -nv -O - {_URL} | grep -q hello", start="wget --version"),
    Program("urllib", _python("print(urllib.request.urlopen(url).read().decode())"), start="python3 --version"),
    Program("requests", _python("import requests; print(requests.get(url).text)"), start=_version("requests")),
    Program("httpx", _python("import httpx; print(httpx.get(url).text)"), start=_version("httpx")),
    Program(
        "pyqwest, and all of reqwest",
        _python("import pyqwest; print(pyqwest.SyncClient().get(url).text())"),
        start="python3 -c 'from importlib.metadata import version; import pyqwest; print(version(\"pyqwest\"))'",
        shows="",
    ),
    Program(
        "aiohttp",
        _aiohttp("trust_env=True"),
        "trust_env=True",
        _version("aiohttp"),
        _aiohttp(""),
        shows="sentence",
    ),
    Program(
        "Node's fetch, from version 24 on",
        _node("node"),
        "platform",
        "node --version",
        f"unset NODE_USE_ENV_PROXY; {_node('node')}",
        shows="403",
    ),
    Program("Node's fetch, version 20", _node("node20"), "nothing", "node20 --version", shows=""),
    _of_java("Java's HttpClient", _HTTP_CLIENT, "403"),
    _of_java("Java's HttpURLConnection", _URL_CONNECTION, "sentence"),
)
