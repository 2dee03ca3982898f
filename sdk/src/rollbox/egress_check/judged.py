"""What the attempts of a sandbox say of egress, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from rollbox.egress_check.tries import INTERNET, Place, Seen

# A refusal is to come at once: what waits for a name or a connection would hang for minutes.
AT_ONCE_S: Final = 1.0
MOST_CHARS: Final = 200

POLICIES: Final = (
    "A sandbox must have no network of its own: have a network plugin that enforces NetworkPolicy, and look for a "
    "policy of yours that allows it."
)
RESOLVER: Final = (
    "Look for a policy or a setting of yours that gives sandboxes a resolver: names that they look up themselves are a "
    "way out."
)
PROXY: Final = (
    "The sidecar's relay answers for the proxy: see that its version is the control plane's, and its log for `relay`."
)
INSIDE: Final = (
    "Put its range into egress.blockedCidrs (with `rollbox up`: ROLLBOX_EGRESS_BLOCKED_CIDRS), and take it out of "
    "egress.allowedPrivateCidrs."
)
LINK: Final = (
    "See the pods and the log of egress, and whether they reach port 7070 of sandboxes: "
    "docs/runbooks/RollboxEgressDown.md."
)
NAME_SERVER: Final = (
    "See that egress.dnsServers, or the cluster's DNS, answer the egress pods, and know the name: "
    "docs/runbooks/RollboxEgressResolverFailing.md."
)
SERVER: Final = "See that the server runs, and that a firewall or a NetworkPolicy lets egress pods reach it."
CACHE: Final = (
    "See the pod and the log of the package cache (component `packages`), and that egress pods reach its port 8080: "
    "docs/runbooks/RollboxPackageCacheFailing.md."
)
PRIVATE: Final = "Where sandboxes are to reach it, put its address into egress.allowedPrivateCidrs."


@dataclass(frozen=True, slots=True)
class Found:
    """One finding: what was tried, whether it is in order, what was seen, and what to do where it is not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def offline(seen: Mapping[str, Seen]) -> Iterator[Found]:
    """Of what was tried under a policy that allows nothing."""
    direct, there = seen["direct connection"], f"{INTERNET[0]}:{INTERNET[1]}"
    right, wrong = f"{there} is not reached past the proxy", f"a sandbox reaches {there} past the proxy"
    yield _found("direct connection", bool(direct.error), right, wrong, POLICIES)
    yield _look_up(seen["name look-up"])
    yield _refusal(seen["refusal"])


def inside(places: Sequence[Place], seen: Mapping[str, Seen]) -> Iterator[Found]:
    """Of what was tried under a policy that allows all that is outside."""
    for place in places:
        one = seen[place.name]
        if one.code == "egress_denied":
            yield Found(place.name, True, _short(f"refused under `open`: {one.detail}"))
        elif one.code == "port_unreachable":
            # An address of loopback is the sandbox itself.
            yield Found(place.name, True, _short(f"{place.there} is not reached: {one.detail}"))
        elif one.status == HTTPStatus.OK:
            yield Found(place.name, False, f"a sandbox reaches {place.there} through egress", INSIDE)
        elif one.code == "egress_unreachable":
            told = f"egress tried to reach {place.there} for a sandbox, and only the network has stopped it"
            yield Found(place.name, False, told, INSIDE)
        else:
            yield Found(place.name, False, _short(f"{place.there}: {_said(one)}"), PROXY)


def cache(seen: Mapping[str, Seen]) -> Found:
    """Of what the package cache was asked under the same policy."""
    one = seen["package cache"]
    if one.code == "egress_denied":
        return Found("package cache", True, _short(f"not installed (egress.packages.enabled): {one.detail}"))
    # It has the index that it was asked for, or says itself that it has not.
    if one.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND) and not one.code:
        return Found("package cache", True, f"answers through egress in {one.seconds:.2f} s")
    return Found("package cache", False, _short(f"does not answer: {_said(one)}"), CACHE)


def allowed(place: Place, one: Seen) -> Found:
    """Of what was tried under a policy that allows one host."""
    if one.status == HTTPStatus.OK and not one.error:
        return Found(place.name, True, f"{place.host}:{place.port} is reached through egress in {one.seconds:.2f} s")
    detail = _short(f"{place.host}:{place.port} is allowed, and not reached: {_said(one)}")
    if one.code == "egress_denied":
        return Found(place.name, False, detail, PRIVATE)
    # What egress says last: "the name has no address", "no name server answers", or how the server has failed.
    if "name" in one.detail.rpartition(": ")[2]:
        return Found(place.name, False, detail, NAME_SERVER)
    return Found(place.name, False, detail, LINK if one.code == "egress_unavailable" else SERVER)


def _look_up(seen: Seen) -> Found:
    if not seen.error:
        return Found("name look-up", False, "a sandbox resolves names by itself", RESOLVER)
    right = f"fails in {seen.seconds:.2f} s"
    return _found("name look-up", seen.seconds < AT_ONCE_S, right, f"{right}: programs wait for it", RESOLVER)


def _refusal(seen: Seen) -> Found:
    if seen.status == HTTPStatus.OK:
        return Found("refusal", False, "a sandbox reaches a host under `offline`", LINK)
    if seen.status != HTTPStatus.FORBIDDEN or "offline" not in seen.detail:
        wanted = "the proxy does not refuse with 403 and the name of the policy"
        return Found("refusal", False, _short(f"{wanted}: {_said(seen)}"), PROXY)
    right = f"under `offline` the proxy answers 403 in {seen.seconds:.2f} s"
    return _found("refusal", seen.seconds < AT_ONCE_S, right, f"{right}: that is slow", PROXY)


def _found(name: str, ok: bool, right: str, wrong: str, fix: str) -> Found:
    return Found(name, True, right) if ok else Found(name, False, wrong, fix)


def _said(seen: Seen) -> str:
    return seen.error or " ".join(filter(None, (str(seen.status), seen.code, seen.detail)))


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 1]}…"
