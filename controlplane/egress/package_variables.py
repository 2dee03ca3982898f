"""The variables by which package managers find the package cache, for what no sidecar tells them. Pure.

Sidecars tell commands the same (``sidecar/src/spawner/proxies.rs``); a test compares them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

# As egress knows it (``egress::policy::PACKAGES``).
CACHE_HOST: Final = "packages.rollbox.internal"


def package_variables(cached: Iterable[str]) -> Mapping[str, str]:
    """Variables by name.

    Args:
        cached: the indexes that the package cache has.
    """
    told: dict[str, str] = {}
    for index in cached:
        url = f"http://{CACHE_HOST}/{index}"
        match index:
            case "pypi.org":
                told |= {"PIP_INDEX_URL": f"{url}/simple/", "PIP_TRUSTED_HOST": CACHE_HOST}
                told |= {"UV_DEFAULT_INDEX": f"{url}/simple/", "UV_INSECURE_HOST": CACHE_HOST}
            case "registry.npmjs.org":
                told["npm_config_registry"] = f"{url}/"
            case "proxy.golang.org":
                told["GOPROXY"] = url
            case _:
                pass
    return told
