"""``Settings``: all settings of a control plane, on either backend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from controlplane.egress import EgressOptions
from controlplane.settings import rules
from controlplane.settings.backends import EngineSettings, KubernetesSettings
from controlplane.settings.egress import read_egress, read_feed_key
from controlplane.settings.images import ImageSettings
from controlplane.settings.reader import PREFIX, Reader, SettingError
from controlplane.settings.rules import Listen
from controlplane.settings.webhooks import read_webhooks
from controlplane.webhooks import Endpoint

# The default ports on Kubernetes; the chart's Services have the same.
API_PORT: Final = 8081
READY_PORT: Final = 8082
ROUTES_PORT: Final = 8083
# As long as the default ttl, so that it only ends unused sandboxes with a longer ttl.
IDLE_TIMEOUT_MS: Final = 3_600_000
# Probes that are further apart than this say nothing about the time between them.
MAX_PROBE_EVERY_MS: Final = 60_000
# Some 300 bytes each, in the store.
MAX_AUDIT_KEPT: Final = 1_000_000
MAX_IDLE_TIMEOUT_MS: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the control plane.

    Attributes:
        backend: the settings of the backend that sandboxes run on.
        api, ready, routes: the listen addresses of the three servers.
        api_keys: key -> owner.
        signing_key_file: Ed25519 private key, PEM.
        starts_in_flight: how many sandboxes start at once, over all replicas; the others wait in a queue.
        max_sandboxes: for all owners together; 0 = no limit.
        redis_url: the store that all replicas share; None = this process's memory (on an engine, with a journal).
        probe_every_ms: how often the liveness of every running sandbox is probed; 0 = never.
        gateway_url: of any gateway, through which a sandbox that does not respond is probed too before it is declared
            lost; None = none.
        idle_timeout_ms: after which an unused sandbox without an idle timeout of its own ends; 0 = never.
        images: how images' names are resolved and where images are pulled from.
        operators: owners that may change pools and quotas; if none are named, the only owner, where there is just one.
        overcommit_cpu, overcommit_memory: shares of limits, in thousandths, that are requested where a create gives
            limits alone.
        egress: how sandboxes reach the network; None = egress is not installed, and they reach nothing.
        feed_key: what egress replicas show to get their feed; empty where egress is not installed.
        audit_stdout: whether audit entries are written to stdout.
        audit_kept: the newest audit entries that the store keeps for operators; 0 = none. An engine has them in a file.
        webhooks: where events are posted.
        console: whether the console's pages are served (``rollbox ui``).
        ports_domain: the domain under which gateways serve ports by host name (PORT-ID.DOMAIN); None = they do not.
    """

    backend: EngineSettings | KubernetesSettings
    api: Listen
    ready: Listen
    routes: Listen
    api_keys: Mapping[str, str]
    signing_key_file: Path
    starts_in_flight: int
    max_sandboxes: int
    redis_url: str | None = None
    probe_every_ms: int = 0
    gateway_url: str | None = None
    ports_domain: str | None = None
    idle_timeout_ms: int = IDLE_TIMEOUT_MS
    operators: frozenset[str] = frozenset()
    images: ImageSettings = field(default_factory=ImageSettings)
    overcommit_cpu: int = 50
    overcommit_memory: int = 125
    console: bool = True
    audit_stdout: bool = False
    audit_kept: int = 0
    webhooks: tuple[Endpoint, ...] = ()
    egress: EgressOptions | None = None
    feed_key: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Reads all settings.

        Raises:
            SettingError: the first one that is missing or invalid.
        """
        read = Reader(environ)
        on_kubernetes = read("BACKEND", rules.one_of("engine", "kubernetes"), "engine") == "kubernetes"
        backend = KubernetesSettings.read(read) if on_kubernetes else EngineSettings.read(read)
        api, ready, routes = _addresses(backend)
        keys = _api_keys(read)
        probe_every_ms = read("PROBE_EVERY_MS", rules.count(0, MAX_PROBE_EVERY_MS), "20000" if on_kubernetes else "0")
        return cls(
            backend=backend,
            api=read("API", Listen.parse, api),
            ready=read("READY", Listen.parse, ready),
            routes=read("ROUTES", Listen.parse, routes),
            api_keys=keys,
            signing_key_file=read("SIGNING_KEY_FILE", rules.file),
            starts_in_flight=read("STARTS_IN_FLIGHT", rules.count(1, 1024), "64" if on_kubernetes else "4"),
            max_sandboxes=read("MAX_SANDBOXES", rules.count(0, 1_000_000), "0"),
            redis_url=read.secret("REDIS_URL", rules.redis_url) if read.has("REDIS_URL") else None,
            probe_every_ms=probe_every_ms,
            gateway_url=_gateway_url(read, probe_every_ms),
            ports_domain=read.optional("PORTS_DOMAIN", rules.domain),
            operators=_operators(read, keys),
            images=_images(read, keys),
            idle_timeout_ms=read("IDLE_TIMEOUT_MS", rules.count(0, MAX_IDLE_TIMEOUT_MS), str(IDLE_TIMEOUT_MS)),
            overcommit_cpu=read("OVERCOMMIT_CPU", rules.share, "0.05"),
            overcommit_memory=read("OVERCOMMIT_MEMORY", rules.share, "0.125"),
            egress=read_egress(read),
            feed_key=read_feed_key(read),
            audit_stdout=read("AUDIT_STDOUT", rules.one_of("on", "off"), "on" if on_kubernetes else "off") == "on",
            audit_kept=read("AUDIT_KEPT", rules.count(0, MAX_AUDIT_KEPT), "50000" if on_kubernetes else "0"),
            webhooks=read_webhooks(read),
            console=read("CONSOLE", rules.one_of("on", "off"), "on") == "on",
        )


def _addresses(backend: EngineSettings | KubernetesSettings) -> tuple[str, str, str]:
    if isinstance(backend, KubernetesSettings):
        return f"0.0.0.0:{API_PORT}", f"0.0.0.0:{READY_PORT}", f"0.0.0.0:{ROUTES_PORT}"
    folder = backend.state_dir
    return f"unix:{folder}/api.sock", f"unix:{folder}/ready/ready.sock", f"unix:{folder}/routes.sock"


def _gateway_url(read: Reader, probe_every_ms: int) -> str | None:
    url = read.optional("GATEWAY_URL", rules.http_url)
    if probe_every_ms and url is None:
        words = "required where PROBE_EVERY_MS is not 0: a sandbox is lost only if probes through a gateway fail too"
        raise SettingError(f"{PREFIX}GATEWAY_URL", None, words)
    return url


def _images(read: Reader, keys: Mapping[str, str]) -> ImageSettings:
    images = ImageSettings.read(read)
    if stranger := next(iter(sorted(images.owner_secrets.keys() - set(keys.values()))), None):
        raise SettingError(f"{PREFIX}OWNER_PULL_SECRETS", stranger, "must name owners who have an API key")
    return images


def _operators(read: Reader, keys: Mapping[str, str]) -> frozenset[str]:
    named = frozenset(read("OPERATORS", rules.words, ""))
    owners = frozenset(keys.values())
    if stranger := next(iter(sorted(named - owners)), None):
        raise SettingError(f"{PREFIX}OPERATORS", stranger, "must name owners who have an API key")
    return named or (owners if len(owners) == 1 else frozenset())


def _api_keys(read: Reader) -> Mapping[str, str]:
    if not read.has("API_KEYS_FILE"):
        return read.secret("API_KEYS", rules.api_keys)
    if read.has("API_KEYS"):
        raise SettingError(f"{PREFIX}API_KEYS", "(hidden)", f"set it or {PREFIX}API_KEYS_FILE, and not both")
    return read("API_KEYS_FILE", rules.keys_file)
