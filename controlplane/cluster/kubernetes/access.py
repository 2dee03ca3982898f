"""Where the API server is and how one proves who one is: from a kubeconfig, or as the pod that this process is in."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from controlplane.errors import Problem


@dataclass(frozen=True, slots=True)
class Access:
    """The way to an API server.

    Attributes:
        tls: None for plain HTTP.
        server_name: what its certificate must name, when that is not the host of ``url``.
    """

    url: str
    tls: ssl.SSLContext | None
    server_name: str | None
    configuration: Configuration

    async def headers(self) -> Mapping[str, str]:
        """The credential of one call; a pod's token is read again when it was renewed. Cost: a file read a minute."""
        credential = await self.configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": str(credential)} if credential else {}


async def access(kubeconfig: Path | None) -> Access:
    """Finds the API server.

    Args:
        kubeconfig: None: the pod's own service account.

    Raises:
        Problem: internal, naming what cannot be read.
    """
    configuration = Configuration()
    where = "the service account of this pod" if kubeconfig is None else f"the kubeconfig {kubeconfig}"
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
        url = str(configuration.host)
        tls = await asyncio.to_thread(_tls, configuration) if url.startswith("https") else None
    # The library trusts the file's shape: a list where it wants a mapping is a TypeError.
    except (ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise Problem("internal", f"{where} gives no way to an API server: {error}") from error
    return Access(url, tls, configuration.tls_server_name, configuration)


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
