"""The routes of ``/v1/sandboxes/{id}/egress``: the network policy of a sandbox."""

from dataclasses import asdict
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from controlplane.api.context import Owner, Service
from controlplane.egress import Compiled, CompiledRule, EgressAttempt, EgressVerdict, PolicyOrPreset
from controlplane.lifecycle.egress.log import MOST_ATTEMPTS
from controlplane.lifecycle.service.egress_calls import EgressView
from controlplane.model.base import Closed

MOST_WAIT_MS = 60_000

router = APIRouter(tags=["egress"])


class EgressRequest(Closed):
    """What a sandbox may reach from now on: the name of a preset, or a policy.

    Attributes:
        wait_ms: for how long the switch may take.
    """

    policy: PolicyOrPreset
    wait_ms: Annotated[int, Field(ge=1, le=MOST_WAIT_MS)] = 10_000


class RuleBody(BaseModel):
    """One rule as it is in force.

    Attributes:
        id: what a refusal names.
        host: null: the rule is about a network.
        cidr: null: the rule is about a host.
        ports: first and last of each range; empty: all.
    """

    id: str
    host: str | None
    cidr: str | None
    ports: list[tuple[int, int]]

    @classmethod
    def of(cls, rule: CompiledRule) -> Self:
        """From a rule."""
        return cls(id=rule.id, host=rule.host or None, cidr=rule.cidr or None, ports=list(rule.ports))


class RulesBody(BaseModel):
    """A policy as rules alone: presets are looked up.

    Attributes:
        mode: ``offline``: nothing is allowed; ``rules``: what ``allow`` names and ``deny`` does not; ``open``: what
            ``deny`` does not name; ``dated``: as ``rules``, and package indexes through the package cache alone.
        limits: of the sandbox; what is not there has the installation's default.
        until: of mode ``dated``: packages that were published from then on are not there; else empty.
    """

    mode: Literal["offline", "rules", "open", "dated"]
    allow: list[RuleBody]
    deny: list[RuleBody]
    limits: dict[str, int]
    until: str = ""

    @classmethod
    def of(cls, policy: Compiled) -> Self:
        """From compiled rules."""
        allow, deny = ([RuleBody.of(one) for one in rules] for rules in (policy.allow, policy.deny))
        return cls(mode=policy.mode, allow=allow, deny=deny, limits=dict(policy.limits), until=policy.until)


class LinkBody(BaseModel):
    """Whether the platform is connected to the sandbox for its egress.

    Attributes:
        state: ``none``: it has been offline since its birth; ``unknown``: another control plane would know.
        detail: why it is down.
    """

    state: Literal["up", "down", "none", "unknown"]
    detail: str


class EgressBody(BaseModel):
    """The network policy of a sandbox.

    Attributes:
        policy: the name of the preset that it was when it was set, or ``custom``.
        revision: increases with every switch; 0: there was none.
        applied: whether the last switch is in force.
        cut: how many open connections were closed for it.
    """

    policy: str
    revision: int
    applied: bool
    cut: int
    link: LinkBody
    rules: RulesBody

    @classmethod
    def of(cls, view: EgressView) -> Self:
        """From the lifecycle's view."""
        binding = view.sandbox.egress
        return cls(
            policy=binding.name,
            revision=binding.revision,
            applied=binding.in_force,
            cut=binding.cut,
            link=_link(view),
            rules=RulesBody.of(view.policy),
        )


class AttemptBody(BaseModel):
    """A connection that a program asked for, or several equal ones of one second.

    Attributes:
        host: as it was asked for.
        address: that was dialled; empty: none was.
        verdict: an allowed connection is there when it begins (without bytes), and when it ends; ``cut``: it was
            allowed, and closed by a switch; ``no_link``: the sandbox had lost its link to egress.
        policy, rule: that decided; an empty rule: none did.
        protocol: http, connect, socks5, packages (a request to the package cache, whose host is the index) or dns.
        sent_bytes, received_bytes: seen from the sandbox.
        count: how many of them.
    """

    at_ms: int
    host: str
    port: int
    address: str
    verdict: EgressVerdict
    policy: str
    rule: str
    protocol: str
    sent_bytes: int
    received_bytes: int
    duration_ms: int
    count: int

    @classmethod
    def of(cls, attempt: EgressAttempt) -> Self:
        """From the log."""
        return cls(**asdict(attempt))


class LogBody(BaseModel):
    """The newest attempts, oldest of them first."""

    attempts: list[AttemptBody]


@router.get("/sandboxes/{sandbox_id}/egress", summary="The network policy of a sandbox")
async def get(sandbox_id: str, service: Service, owner: Owner) -> EgressBody:
    """With its rules, and whether its last switch is in force."""
    return EgressBody.of(await service.egress.view(owner, sandbox_id))


@router.put("/sandboxes/{sandbox_id}/egress", summary="Switch the network policy; answers when it is in force")
async def put(sandbox_id: str, wish: EgressRequest, service: Service, owner: Owner) -> EgressBody:
    """Open connections that it does not allow are closed by then. Repeating it is success."""
    view = await service.egress.switch(owner, sandbox_id, wish.policy, wish.wait_ms / 1000)
    return EgressBody.of(view)


@router.get("/sandboxes/{sandbox_id}/egress/log", summary="What a sandbox tried to reach, also after its end")
async def log(
    sandbox_id: str,
    service: Service,
    owner: Owner,
    most: Annotated[int, Query(ge=1, le=MOST_ATTEMPTS, description="so many of the newest ones")] = MOST_ATTEMPTS,
) -> LogBody:
    """A second late; the newest 500 are kept for two days after the last one, if the store lasts.

    What a sandbox refused by itself, since it had no link to egress, is among them while it runs and answers.
    """
    return LogBody(attempts=[AttemptBody.of(one) for one in await service.egress.log(owner, sandbox_id, most)])


def _link(view: EgressView) -> LinkBody:
    if not view.sandbox.egress.bound:
        return LinkBody(state="none", detail="")
    if view.link is None:
        return LinkBody(state="unknown", detail="")
    return LinkBody(state="up" if view.link.up else "down", detail=view.link.detail)
