"""``ImageSettings``: how images' names are resolved, where images are pulled from, and the private registry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self, cast

from controlplane.images import Rewrites, StoreLimit
from controlplane.settings import rules
from controlplane.settings.reader import PREFIX, Reader, SettingError

# Of images that are made of sandboxes, for each owner; a guess: some hundred prepared repositories.
COMMIT_BYTES: Final = 64 << 30
MAX_COMMIT_BYTES: Final = 1 << 50
# Of recorded copies, for each owner; a guess: the images of one run, each of some gigabytes.
RECORDED_BYTES: Final = 64 << 30


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Where agents put images that they make of sandboxes: in the registry, or in the mirror before it.

    Attributes:
        address: host and port.
        tokens: the folder of ``tls.key``, which signs a token for each image, and ``tls.crt``, by which that place
            knows it: agents never see the registry's account.
        authority_file: the authority of that place's certificate; None: that of the registry's.
    """

    address: str
    tokens: Path
    authority_file: Path | None = None

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: no images are made of sandboxes."""
        if not read.has("REGISTRY_COMMITS"):
            read.refuse(
                ("REGISTRY_COMMITS_CA", "REGISTRY_TOKENS"), "it needs REGISTRY_COMMITS, the address that it is for"
            )
            return None
        return cls(
            address=read("REGISTRY_COMMITS", rules.registry),
            tokens=read("REGISTRY_TOKENS", rules.absolute_path),
            authority_file=read.optional("REGISTRY_COMMITS_CA", rules.file),
        )


@dataclass(frozen=True, slots=True)
class PushSettings:
    """The private registry's API, by an account that may push, list and remove.

    Attributes:
        address: host and port that takes pushes.
        account_file: has ``USER:PASSWORD``.
        authority_file: the authority of the registry's certificate; None: one that systems trust.
        commits: None: no images are made of sandboxes.
    """

    address: str
    account_file: Path
    authority_file: Path | None
    commits: CommitSettings | None = None

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: the registry is not asked."""
        if not read.has("REGISTRY_PUSH"):
            read.refuse(
                ("REGISTRY_ACCOUNT_FILE", "REGISTRY_CA", "REGISTRY_COMMITS", "REGISTRY_COMMITS_CA", "REGISTRY_TOKENS"),
                "it needs REGISTRY_PUSH, the address that it is for",
            )
            return None
        return cls(
            address=read("REGISTRY_PUSH", rules.registry),
            account_file=read("REGISTRY_ACCOUNT_FILE", rules.file),
            authority_file=read.optional("REGISTRY_CA", rules.file),
            commits=CommitSettings.read(read),
        )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the private registry's files are looked after.

    Attributes:
        collector: host and port of what sees them.
        name: in its certificate.
        budget: the most that images may take.
    """

    collector: str
    name: str
    budget: StoreLimit

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: somebody else looks after the registry."""
        if not read.has("COLLECTOR"):
            read.refuse(
                ("COLLECTOR_NAME", "REGISTRY_BUDGET"),
                "it needs COLLECTOR, which sees the registry's files",
            )
            return None
        return cls(
            collector=read("COLLECTOR", rules.host_and_port),
            name=read("COLLECTOR_NAME", rules.domain),
            budget=read("REGISTRY_BUDGET", StoreLimit.parse, "80%"),
        )


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The private registry that images are copied into before nodes pull them.

    Attributes:
        host: host and port, as nodes and images' names know it.
        mirror: host and port of the mirror that copies.
        mirror_name: the name in its certificate.
        tls_folder: ``ca.crt``, ``tls.crt`` and ``tls.key``, by which the mirror knows this control plane.
        push: None: neither are images made of sandboxes, nor is it asked what it has.
        store: None: somebody else looks after its files.
        recorded_bytes: the most that the recorded copies of an owner may take; 0: no limit. With ``store`` or ``push``.
        past_full: where it is full, nodes pull what all owners may have from where it is.
    """

    host: str
    mirror: str
    mirror_name: str
    tls_folder: Path
    push: PushSettings | None = None
    store: StoreSettings | None = None
    recorded_bytes: int = 0
    past_full: bool = True

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: there is none."""
        if not read.has("REGISTRY"):
            read.refuse(
                ("MIRROR", "MIRROR_NAME", "MIRROR_TLS_FOLDER", "REGISTRY_PUSH", "COLLECTOR", "REGISTRY_WHEN_FULL"),
                "it needs REGISTRY, the registry that images are in",
            )
            return None
        looked_after = read.has("COLLECTOR") or read.has("REGISTRY_PUSH")
        if not looked_after:
            read.refuse(
                ("RECORDED_BYTES",), "it needs COLLECTOR, which sees the registry's files, or REGISTRY_PUSH, its API"
            )
        most = rules.count(0, MAX_COMMIT_BYTES)
        return cls(
            host=read("REGISTRY", rules.registry),
            mirror=read("MIRROR", rules.host_and_port),
            mirror_name=read("MIRROR_NAME", rules.domain),
            tls_folder=read("MIRROR_TLS_FOLDER", rules.tls_folder),
            push=PushSettings.read(read),
            store=StoreSettings.read(read),
            recorded_bytes=read("RECORDED_BYTES", most, str(RECORDED_BYTES)) if looked_after else 0,
            past_full=read("REGISTRY_WHEN_FULL", rules.one_of("upstream", "fail"), "upstream") == "upstream",
        )


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Settings for images.

    Attributes:
        digests: ``auto``: names are resolved to digests where registries answer; ``required``: others are refused;
            ``never``: no registry is asked.
        rewrites: rules that say from where images are pulled.
        plain_registries: registries that are asked by http, as host or host:port.
        registry: where images are copied to; None: nodes pull them from where they are.
        owner_secrets: the image pull secrets that one owner alone has, by owner.
        commit_bytes: what an owner may make of sandboxes whose quota does not say it; 0: no limit.
    """

    digests: Literal["auto", "required", "never"] = "auto"
    rewrites: Rewrites = field(default_factory=Rewrites)
    plain_registries: Sequence[str] = ()
    registry: RegistrySettings | None = None
    owner_secrets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    commit_bytes: int = COMMIT_BYTES

    @classmethod
    def read(cls, read: Reader) -> Self:
        """Reads them; see ``Settings.from_environment``."""
        digests = read("IMAGE_DIGESTS", rules.one_of("auto", "required", "never"), "auto")
        plain = read("PLAIN_HTTP_REGISTRIES", rules.registries, "")
        if plain and digests == "never":
            rule = "no registry is asked: IMAGE_DIGESTS=never"
            raise SettingError(f"{PREFIX}PLAIN_HTTP_REGISTRIES", ",".join(plain), rule)
        registry = RegistrySettings.read(read)
        if registry is not None and digests == "never":
            raise SettingError(f"{PREFIX}REGISTRY", registry.host, "images are copied by digest: IMAGE_DIGESTS=never")
        return cls(
            registry=registry,
            owner_secrets=_owner_secrets(read, registry),
            digests=cast("Literal['auto', 'required', 'never']", digests),
            rewrites=read("IMAGE_REWRITES", Rewrites.parse, ""),
            plain_registries=plain,
            commit_bytes=read("COMMIT_BYTES", rules.count(0, MAX_COMMIT_BYTES), str(COMMIT_BYTES)),
        )


def _owner_secrets(read: Reader, registry: RegistrySettings | None) -> Mapping[str, Sequence[str]]:
    found = read.optional("OWNER_PULL_SECRETS", rules.names_by_owner) or {}
    if found and registry is None:
        # A node pulls with what its pod names, and what it has pulled for one owner it starts for all.
        read.refuse(
            ("OWNER_PULL_SECRETS",), "it needs REGISTRY: nodes themselves have no credentials of one owner alone"
        )
    return found
