"""The command line options of Kubernetes' programs and of etcd."""

from __future__ import annotations

from tests.cluster import layout
from tests.cluster.layout import API_PORT, ETC, NODE, PKI, POD_CIDR, SERVICE_CIDR, STATE

ISSUER = "https://kubernetes.default.svc.cluster.local"


def flags(options: dict[str, str]) -> list[str]:
    """As arguments."""
    return [f"--{key}={value}" for key, value in options.items()]


ETCD = {
    "data-dir": f"{STATE}/etcd",
    "listen-client-urls": "http://127.0.0.1:2379",
    "advertise-client-urls": "http://127.0.0.1:2379",
    "listen-peer-urls": "http://127.0.0.1:2380",
    # A test cluster survives the end of a process, not that of the machine.
    "unsafe-no-fsync": "true",
    "log-level": "warn",
    "logger": "zap",
}


def apiserver() -> dict[str, str]:
    """The API server."""
    return {
        "etcd-servers": "http://127.0.0.1:2379",
        "secure-port": str(API_PORT),
        "advertise-address": layout.node_ip(),
        "service-cluster-ip-range": SERVICE_CIDR,
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "client-ca-file": f"{PKI}/ca.crt",
        "tls-cert-file": f"{PKI}/apiserver.crt",
        "tls-private-key-file": f"{PKI}/apiserver.key",
        "kubelet-client-certificate": f"{PKI}/apiserver-kubelet.crt",
        "kubelet-client-key": f"{PKI}/apiserver-kubelet.key",
        "kubelet-certificate-authority": f"{PKI}/ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        **_aggregation(),
        # On by default from 1.35; the kubelet has it too (files/kubelet.yaml).
        "feature-gates": "ImageVolume=true",
        # Otherwise it waits up to a minute for its clients' connections when it is stopped.
        "shutdown-send-retry-after": "true",
        "service-account-issuer": ISSUER,
        "service-account-key-file": f"{PKI}/service-account.pub",
        "service-account-signing-key-file": f"{PKI}/service-account.key",
    }


def _aggregation() -> dict[str, str]:
    """Not used, but without it the controllers complain every ten seconds."""
    return {
        "requestheader-client-ca-file": f"{PKI}/ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
    }


def served(client: str) -> dict[str, str]:
    """What the two controllers have in common."""
    kubeconfig = f"{ETC}/{client}.kubeconfig"
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "tls-cert-file": f"{PKI}/node-server.crt",
        "tls-private-key-file": f"{PKI}/node-server.key",
        "leader-elect": "false",
    }


def controllers() -> dict[str, str]:
    """The controller manager."""
    return {
        **served("controller-manager"),
        "allocate-node-cidrs": "true",
        "cluster-cidr": POD_CIDR,
        "node-cidr-mask-size": POD_CIDR.rpartition("/")[2],
        "service-cluster-ip-range": SERVICE_CIDR,
        "use-service-account-credentials": "true",
        "service-account-private-key-file": f"{PKI}/service-account.key",
        "root-ca-file": f"{PKI}/ca.crt",
        "cluster-signing-cert-file": f"{PKI}/ca.crt",
        "cluster-signing-key-file": f"{PKI}/ca.key",
        # A silent node is one sooner, after as many lost reports as ever: the kubelet renews its lease twice as often.
        "node-monitor-grace-period": "30s",
    }


def kubelet() -> dict[str, str]:
    """The kubelet."""
    return {
        "config": f"{ETC}/kubelet.yaml",
        "kubeconfig": f"{ETC}/kubelet.kubeconfig",
        "root-dir": str(layout.KUBELET),
        "hostname-override": NODE,
        "node-ip": layout.node_ip(),
    }
