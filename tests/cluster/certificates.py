"""One certificate authority for the cluster, and what it signs: servers, and one client per part."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.layout import API_PORT, API_SERVICE, ETC, KUBECONFIG, NODE, PKI, node_ip

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
# Client -> its common name and group. Those in system:masters pass every authorization.
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "apiserver-kubelet": ("kube-apiserver-kubelet-client", "system:masters"),
    "cilium": ("cilium", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
API_NAMES = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]


def issue() -> None:
    """Make what is missing; everything anew when this machine's address has changed."""
    stamp = PKI / "for-address"
    if stamp.exists() and stamp.read_text() == node_ip():
        return
    PKI.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign(_subject("rollbox-test-cluster"), ca_key, None, ca_key)
    _store("ca", ca_key, ca)
    _server("apiserver", ca, ca_key, ["localhost", NODE, *API_NAMES], ["127.0.0.1", API_SERVICE, node_ip()])
    _server("node-server", ca, ca_key, [NODE], ["127.0.0.1", node_ip()])
    for name, (common, group) in CLIENTS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        _store(name, key, _sign(_subject(common, group), key, ca, ca_key))
        _kubeconfig(name)
    _service_account_key()
    stamp.write_text(node_ip())


def _server(name: str, ca: x509.Certificate, ca_key: Key, names: list[str], addresses: list[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(n) for n in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(a)) for a in dict.fromkeys(addresses)]
    _store(name, key, _sign(_subject(name), key, ca, ca_key, alternatives))


def _sign(
    subject: x509.Name,
    key: Key,
    ca: x509.Certificate | None,
    ca_key: Key,
    names: list[x509.GeneralName] | None = None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = x509.CertificateBuilder(
        issuer_name=ca.subject if ca else subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + datetime.timedelta(days=365),
    ).add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
    if ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _subject(common: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    return x509.Name(([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []) + parts)


def _service_account_key() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(PKI / "service-account.key", key)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (PKI / "service-account.pub").write_bytes(public)


def _store(name: str, key: Key, certificate: x509.Certificate) -> None:
    _write_key(PKI / f"{name}.key", key)
    (PKI / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _kubeconfig(client: str) -> None:
    """A kubeconfig with everything in it, as JSON, which is YAML too."""
    ETC.mkdir(parents=True, exist_ok=True)
    path = KUBECONFIG if client == "admin" else ETC / f"{client}.kubeconfig"
    user = {"client-certificate-data": _encoded(f"{client}.crt"), "client-key-data": _encoded(f"{client}.key")}
    cluster = {"certificate-authority-data": _encoded("ca.crt"), "server": f"https://127.0.0.1:{API_PORT}"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rollbox-test", "cluster": cluster}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": "rollbox-test", "context": {"cluster": "rollbox-test", "user": client}}],
        "current-context": "rollbox-test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))


def _encoded(name: str) -> str:
    return base64.b64encode((PKI / name).read_bytes()).decode()
