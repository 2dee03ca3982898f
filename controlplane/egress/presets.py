"""The presets that every installation has, and the operator's own, which are read from a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from controlplane.egress.compiled import OFFLINE_NAME
from controlplane.egress.compiling import compiled
from controlplane.egress.policy import EgressPolicy, PresetName

# The name of a policy that is no preset.
CUSTOM: Final = "custom"
# Of DNS.
NAMES_PORT: Final = 53

# Package indexes, by what a refusal and the log call them.
_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "conda": ("conda.anaconda.org", "repo.anaconda.com"),
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "crates": ("index.crates.io", "static.crates.io", "crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "maven": ("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
    "rubygems": ("rubygems.org", "index.rubygems.org"),
    "nuget": ("api.nuget.org",),
    "packagist": ("repo.packagist.org",),
    "hex": ("repo.hex.pm", "hex.pm"),
    "cran": ("cran.r-project.org", "cloud.r-project.org"),
    "debian": ("deb.debian.org", "security.debian.org"),
    "ubuntu": ("archive.ubuntu.com", "*.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
    "alpine": ("dl-cdn.alpinelinux.org",),
}
# Where the solution of a task in a public repository can be read: forges with their raw, API and pages hosts, and what
# serves copies of these.
_FORGES: Final[Mapping[str, tuple[str, ...]]] = {
    "github": ("github.com", "*.github.com", "*.githubusercontent.com", "*.githubassets.com", "*.github.io"),
    "github-tools": ("github.dev", "*.github.dev", "ghcr.io", "*.ghcr.io", "git.io"),
    "gitlab": ("gitlab.com", "*.gitlab.com", "*.gitlab.io"),
    "bitbucket": ("bitbucket.org", "*.bitbucket.org", "*.bitbucket.io"),
    "codeberg": ("codeberg.org", "*.codeberg.org", "*.codeberg.page"),
    "sourcehut": ("sr.ht", "*.sr.ht", "*.srht.site"),
    "gitea": ("gitea.com", "*.gitea.com", "gitea.io", "*.gitea.io"),
    "gitee": ("gitee.com", "*.gitee.com", "*.gitee.io"),
    "sourceforge": ("sourceforge.net", "*.sourceforge.net", "*.sourceforge.io"),
    "savannah": ("savannah.gnu.org", "*.savannah.gnu.org", "savannah.nongnu.org", "*.savannah.nongnu.org"),
    "azure": ("dev.azure.com", "*.dev.azure.com", "*.visualstudio.com"),
    "google": ("googlesource.com", "*.googlesource.com"),
    "kernel": ("git.kernel.org", "*.git.kernel.org"),
    "mirrors": (
        "*.jsdelivr.net",
        "*.githack.com",
        "*.statically.io",
        "archive.softwareheritage.org",
        "web.archive.org",
    ),
}
_REMOTE_GIT: Final = [22, 9418]


def _hosts(groups: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [{"name": name, "host": host} for name, hosts in groups.items() for host in hosts]


def _remote_git() -> list[dict[str, Any]]:
    everywhere: list[dict[str, Any]] = [{"host": "*"}, {"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}]
    return [{"name": "remote-git", "ports": _REMOTE_GIT, **one} for one in everywhere]


BUILT_IN: Final[Mapping[str, EgressPolicy]] = MappingProxyType(
    {
        OFFLINE_NAME: EgressPolicy(mode="none"),
        "packages": EgressPolicy.model_validate({"mode": "allow", "allow": _hosts(_PACKAGES)}),
        "swe-eval": EgressPolicy.model_validate({"mode": "deny", "deny": [*_hosts(_FORGES), *_remote_git()]}),
    }
)


@dataclass(frozen=True, slots=True)
class EgressOptions:
    """How egress is set up here.

    Attributes:
        port: on a sandbox's loopback, where its relay listens.
        default: the preset of sandboxes that ask for none.
        presets: the installation's, by name.
        cached: the package indexes that the package cache has; empty: there is none.
    """

    port: int
    default: str = OFFLINE_NAME
    presets: Mapping[str, EgressPolicy] = field(default_factory=lambda: BUILT_IN)
    cached: tuple[str, ...] = ()

    @property
    def ports(self) -> frozenset[int]:
        """Of each sandbox's loopback, on which its relay listens: the proxy's, and that of the resolver."""
        return frozenset({self.port, NAMES_PORT})

    @property
    def of_sidecar(self) -> tuple[tuple[str, str], ...]:
        """What the sidecar of each sandbox is told, by names of its settings."""
        cached = (("EGRESS_PACKAGES", ",".join(self.cached)),) if self.cached else ()
        return (("EGRESS_PORT", str(self.port)), ("EGRESS_DNS", "1"), *cached)

    @property
    def dated(self) -> tuple[str, ...]:
        """What a policy with a date reaches through the package cache alone, as ``compiled`` takes it."""
        return dated_hosts(self.cached)


def dated_hosts(cached: Sequence[str]) -> tuple[str, ...]:
    """What a policy with a date reaches through the package cache alone: all indexes that are known, so that none is a
    way around it; empty where there is no cache.

    Args:
        cached: the indexes that it has.
    """
    known = [host for hosts in _PACKAGES.values() for host in hosts]
    return tuple(dict.fromkeys([*cached, *known])) if cached else ()


_FILE: Final = TypeAdapter(dict[PresetName, EgressPolicy])


def read_presets(text: str, cached: Sequence[str] = ()) -> Mapping[str, EgressPolicy]:
    """All presets of an installation: the built-in ones, and those of a file, which may replace all but ``offline``.

    Args:
        text: a JSON object of policies by name.
        cached: the indexes of the package cache; empty: there is none.

    Raises:
        ValueError: it is none; the message names the preset.
    """
    try:
        own = _FILE.validate_python(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"must hold JSON: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(one) for one in first["loc"])
        raise ValueError(f"must hold policies by name: {where}: {first['msg']}") from error
    for reserved in (OFFLINE_NAME, CUSTOM):
        if reserved in own:
            raise ValueError(f"must not hold a preset {reserved}: the name has its meaning already")
    presets = {**BUILT_IN, **own}
    for name, policy in presets.items():
        try:
            compiled(name, policy, presets.get, dated_hosts(cached))
        except ValueError as error:
            raise ValueError(f"preset {name}: {error}") from error
    return presets
