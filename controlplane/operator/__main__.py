"""``python -m controlplane.operator``: the operator of one installation; has the control plane's settings."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import kopf
import structlog

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_agents import NodeAgents
from controlplane.errors import Problem
from controlplane.operator.definitions import Definitions
from controlplane.operator.escalation import Escalation
from controlplane.operator.handlers import options, registry
from controlplane.operator.kernels import Kernels
from controlplane.operator.nodes import NodeNotices
from controlplane.operator.notices import Notices
from controlplane.operator.proofs import Proofs
from controlplane.operator.records import Records
from controlplane.operator.sweep import Sweep
from controlplane.settings import EXIT_CONFIG, NodeAgentSettings, OperatorSettings, SettingError
from controlplane.store import RedisStore
from controlplane.telemetry import complain, configure_log

REDIS_WITHIN_S: Final = 60.0


async def _run(settings: OperatorSettings) -> None:
    clock, place = SystemClock(), settings.place
    async with (
        KubernetesClient.connect(place.kubeconfig, clock) as client,
        RedisStore.open(
            settings.redis_url, installation=place.installation, clock=clock, within_s=REDIS_WITHIN_S
        ) as store,
    ):
        where = {"namespace": place.namespace, "installation": place.installation}
        notices = Notices(client, clock, place.namespace)
        nodes = NodeNotices(client, notices, **where)
        structlog.get_logger("operator").info("operator started", **where)
        async with _agents(client, place.node_agents) as agents, asyncio.TaskGroup() as group:
            kernels = Kernels(agents, notices) if agents else None
            escalation = Escalation(notices, clock, kernels)
            look = Sweep(client, Records(store, clock), notices, clock, escalation, **where)
            sweep = group.create_task(look.run())
            definitions = group.create_task(Definitions(client).run())
            proofs = group.create_task(_proofs(client, agents, notices, settings))
            # Returns on SIGTERM: Kopf installs its own signal handlers.
            await kopf.operator(
                registry=registry(client.way, nodes),
                settings=options(),
                standalone=True,
                namespaces=[place.namespace],
            )
            sweep.cancel()
            definitions.cancel()
            proofs.cancel()


@asynccontextmanager
async def _agents(client: KubernetesClient, settings: NodeAgentSettings | None) -> AsyncIterator[NodeAgents | None]:
    if settings is None:
        yield None
        return
    async with NodeAgents.open(client, settings) as agents:
        yield agents


async def _proofs(
    client: KubernetesClient, agents: NodeAgents | None, notices: Notices, settings: OperatorSettings
) -> None:
    if agents is not None and settings.node_proof:
        lifted = settings.node_proof == "lifted"
        await Proofs(client, agents, notices, settings.node_proof_selector, lifted=lifted).run()


def main() -> int:
    """Runs until SIGTERM; returns the exit status: 0, 64 for a bad setting, 1 if store or API server do not answer."""
    configure_log()
    status = 0
    try:
        asyncio.run(_run(OperatorSettings.from_environment(os.environ)))
    except* SettingError as group:
        complain("operator", group)
        status = EXIT_CONFIG
    except* (Problem, OSError) as group:
        complain("operator", group)
        status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
