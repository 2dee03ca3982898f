"""Connections that fail, certificates and clocks: each has a sentence that says what to do."""

import datetime
import ssl
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.unreachable import skew_s, unreachable
from controlplane.errors import Problem
from tests.support.silent_port import silent_port

DAY = datetime.timedelta(days=1)


def certificate(folder: Path, begins: datetime.datetime, ends: datetime.datetime) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize(("from_days", "to_days", "word"), [(-2, -1, "has expired"), (1, 2, "not valid yet")])
async def test_a_certificate_out_of_its_time_says_so_at_once(
    tmp_path: Path, from_days: int, to_days: int, word: str
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    context = certificate(tmp_path, now + from_days * DAY, now + to_days * DAY)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    (tmp_path / "kubeconfig").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        "contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: "
        f"{{server: 'https://localhost:{port}', certificate-authority: {tmp_path / 'cert.pem'}}}}}]}}"
    )
    try:
        async with KubernetesClient.connect(tmp_path / "kubeconfig") as client:
            with pytest.raises(Problem, match=word) as caught:
                await client.get("/version")
        assert "clock" in caught.value.detail
    finally:
        await runner.cleanup()


async def test_nobody_there_is_a_problem_that_names_the_server(tmp_path: Path) -> None:
    with silent_port() as port:
        (tmp_path / "kubeconfig").write_text(
            "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
            "contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: "
            f"{{server: 'http://127.0.0.1:{port}'}}}}]}}"
        )
        async with KubernetesClient.connect(tmp_path / "kubeconfig") as client:
            with pytest.raises(Problem, match=f"127.0.0.1:{port}"):
                await client.get("/version", within_s=0.3)


@pytest.mark.parametrize("text", ["", "{", "[]", "kind: Config"])
async def test_a_kubeconfig_that_leads_nowhere_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(Problem, match="kubeconfig"):
        async with KubernetesClient.connect(tmp_path / "kubeconfig"):
            pass


async def test_outside_a_cluster_without_a_kubeconfig_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Problem, match="service account"):
        async with KubernetesClient.connect(None):
            pass


def test_our_own_expired_certificate_is_told_from_theirs() -> None:
    error = ssl.SSLError("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired")
    assert "our client certificate has expired" in unreachable("https://a", "GET /x", error, 0).detail


def test_clocks_are_compared() -> None:
    assert skew_s("Thu, 01 Jan 1970 00:01:40 GMT", 400_000) == 300
    assert skew_s(None, 400_000) == 0
    assert skew_s("yesterday", 400_000) == 0


@pytest.mark.parametrize(("version", "attempts"), [({"resourceVersion": "1"}, {1}), ({}, set(range(2, 1_000)))])
async def test_a_patch_of_a_version_that_is_outdated_is_not_sent_again(
    tmp_path: Path, version: dict[str, str], attempts: set[int]
) -> None:
    asked: list[str] = []

    async def conflict(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.json_response({"kind": "Status", "reason": "Conflict", "message": "changed"}, status=409)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", conflict)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "kubeconfig").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        "contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: "
        f"{{server: 'http://127.0.0.1:{runner.addresses[0][1]}'}}}}]}}"
    )
    try:
        async with KubernetesClient.connect(tmp_path / "kubeconfig") as client:
            with pytest.raises(Problem, match="changed"):
                await client.patch("/api/v1/nodes/n1", {"metadata": version}, within_s=1)
    finally:
        await runner.cleanup()
    assert len(asked) in attempts
