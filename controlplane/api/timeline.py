"""The route ``/v1/sandboxes/{id}/timeline``: the history of one sandbox, also after its end."""

from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel

from controlplane.api.context import Owner, Service
from controlplane.api.schemas import EndBody, ParentBody
from controlplane.cluster import Description
from controlplane.errors import Problem
from controlplane.lifecycle.record.timeline import story, summary
from controlplane.model import Sandbox, State

router = APIRouter(tags=["sandboxes"])


class MomentBody(BaseModel):
    """Something that happened: when (Unix ms, and since the moment before), where the sandbox was then, what it was."""

    at_ms: int
    after_ms: int
    state: State
    word: str
    text: str


class TimelineBody(BaseModel):
    """What has happened to a sandbox, oldest first, and what to make of it.

    Attributes:
        summary: where it stands, or why it ended, in one sentence; of one that no node takes: why none does.
        advice: what to do about the end; empty while there is none, and where only the summary says it.
        retry: of the end's cause, as in a problem; None while there is no end.
        timings_ms: how long each phase of the start took.
        requests: what it has set aside of its limits, in words.
        parent: the checkpoint that it was started from; null: it was started from another image.
        draining_at_ms: as in the record.
    """

    id: str
    state: State
    image: str
    labels: dict[str, str]
    summary: str
    end: EndBody | None
    advice: str
    retry: str | None
    moments: list[MomentBody]
    timings_ms: dict[str, int]
    expires_at_ms: int
    idle_timeout_ms: int | None
    lease: str | None
    requests: str
    parent: ParentBody | None
    draining_at_ms: int | None

    @classmethod
    def of(
        cls,
        sandbox: Sandbox,
        place: Description,
        requests: str,
        refusal: Problem | None = None,
        *,
        pulling: str = "",
        silence: str = "",
    ) -> Self:
        """From the record.

        Args:
            sandbox: the record.
            place: what is true of all sandboxes there.
            requests: what it has set aside, in words.
            refusal: the reason if no node takes the sandbox.
            pulling: what its node pulls, for people; empty: nothing.
            silence: that it does not answer, for people; empty: it does.
        """
        problem = None if sandbox.end is None else sandbox.end.problem(sandbox)
        spec = sandbox.spec
        return cls(
            id=sandbox.id,
            state=sandbox.state,
            image=spec.image,
            labels=spec.labels,
            summary=summary(sandbox, refusal, pulling, silence),
            end=None if sandbox.end is None else EndBody.of(sandbox.end),
            advice="" if problem is None else problem.hint,
            retry=None if problem is None else problem.entry.retry,
            moments=[
                MomentBody(at_ms=one.at_ms, after_ms=one.after_ms, state=one.state, word=one.word, text=one.text)
                for one in story(sandbox)
            ],
            timings_ms=dict(sandbox.timings_ms),
            expires_at_ms=sandbox.expires_at_ms,
            idle_timeout_ms=spec.idle_timeout_ms,
            lease=None if spec.lease is None else spec.lease.name,
            requests=requests,
            parent=ParentBody.of(sandbox, place),
            draining_at_ms=sandbox.drained_by_ms,
        )


@router.get("/sandboxes/{sandbox_id}/timeline", summary="What has happened to a sandbox, and why it ended")
async def timeline(sandbox_id: str, service: Service, owner: Owner) -> TimelineBody:
    """Kept as long as the record: 24 hours after the end, if the store lasts."""
    sandbox = await service.get(owner, sandbox_id)
    requests = service.filled(sandbox.spec)[1]
    pulling, silence = await service.pulling(sandbox), await service.console_views.silence(sandbox)
    refusal = service.refusal(sandbox)
    return TimelineBody.of(sandbox, service.description, requests, refusal, pulling=pulling, silence=silence)
