"""Address and credentials of the API server, from a kubeconfig or from the pod's service account."""

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
    """Address and credentials of an API server.

    Attributes:
        tls: None for plain HTTP.
        server_name: the name that its certificate must have, if that is not the host of ``url``.
    """

    url: str
    tls: ssl.SSLContext | None
    server_name: str | None
    configuration: Configuration

    async def headers(self) -> Mapping[str, str]:
        """The credentials for one call; a pod's token file is read again every minute, since tokens are renewed."""
        credential = await self.configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": str(credential)} if credential else {}


async def access(kubeconfig: Path | None) -> Access:
    """Finds the API server.

    Args:
        kubeconfig: None: the service account of the pod that this process runs in.

    Raises:
        Problem: internal, naming the file that cannot be used.
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
    # The library does not validate the file: a list in the place of a mapping raises a TypeError.
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
