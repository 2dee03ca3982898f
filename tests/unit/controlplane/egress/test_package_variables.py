"""The variables of package managers that builds get are those that sidecars tell their commands."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane.egress import package_variables
from controlplane.egress.package_variables import CACHE_HOST

PROXIES = Path(__file__).parents[4] / "sidecar" / "src" / "spawner" / "proxies.rs"
ALL = ("pypi.org", "registry.npmjs.org", "proxy.golang.org", "deb.debian.org")


def test_builds_and_sandboxes_find_the_package_cache_by_the_same_variables() -> None:
    source = PROXIES.read_text()
    body = source[source.index("fn indexes(") : source.index("/// In both cases")]
    arms = re.findall(r'"([a-z.]+)" => vec!\[(.*?)\]', body, re.S)
    told = {}
    for index, arm in arms:
        for name, path in re.findall(r'\("(\w+)", url\(index, "([^"]*)"\)\)', arm):
            told[name] = f"http://{CACHE_HOST}/{index}{path}"
        told |= dict.fromkeys(re.findall(r'\("(\w+)", host\(\)\)', arm), CACHE_HOST)
    assert f'"{CACHE_HOST}"' in source
    assert package_variables(ALL) == told
    assert len(told) == 6
    assert package_variables(["deb.debian.org"]) == {}
