"""The console's pages, for the owner of the API key; ``rollbox ui`` shows them in a browser (docs/console.md).

Like all of ``/v1`` they want the key in a header, which no browser sends by itself, so that nothing here can be read by
a page that a sandbox's server gives to a browser from the gateway's own address.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from controlplane import __version__
from controlplane.api.context import App, Context, Operates, Owner
from controlplane.console import POLICY, Asked, Overview, Pages, SandboxStory
from controlplane.console.overview import PER_PAGE
from controlplane.console.rows import used
from controlplane.console.sandbox import Told
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import QuotaUse
from controlplane.lifecycle.pools import Shown
from controlplane.model import Sandbox, State

T = TypeVar("T")
# Somebody waits; a store that is away for a moment is asked again by the page itself.
WITHIN_S: Final = 5.0
# Rows of the table of quotas, for operators.
MOST_QUOTAS: Final = 50

router = APIRouter(prefix="/console", include_in_schema=False)


async def _pages(context: App) -> Pages:
    if context.console is None:
        raise Problem("unsupported", "the console is switched off in this installation")
    return context.console


PagesOfConsole = Annotated[Pages, Depends(_pages)]


@router.get("")
async def overview(request: Request, context: App, owner: Owner, operates: Operates, pages: PagesOfConsole) -> Response:
    """The first page."""
    asked = Asked.of(_single(request))
    service, now_ms = context.service, context.deps.clock.now_ms()
    looking = service.console_views.find(owner, asked.states, asked.words, asked.offset, PER_PAGE)
    found, use, others, (pools, trouble), silent = await _within(
        asyncio.gather(
            looking,
            service.quota_use(owner),
            _others(context, operates=operates),
            _pools(context),
            service.console_views.silent_since_ms(),
        )
    )
    view = Overview.of(
        (owner, __version__),
        asked,
        found,
        use,
        others=others,
        pools=pools,
        ends=service.console_views.ends(owner),
        troubles=[trouble] if trouble else [],
        now_ms=now_ms,
        silent=silent,
    )
    return HTMLResponse(pages.overview(view), headers=dict(POLICY))


@router.get("/sandboxes/{sandbox_id}")
async def sandbox(sandbox_id: str, context: App, owner: Owner, pages: PagesOfConsole) -> Response:
    """One sandbox: its record, its timeline, its commands."""
    service = context.service
    one = await _within(service.get(owner, sandbox_id))
    told = await _told(context, one)
    view = SandboxStory.of((owner, __version__), one, told, context.deps.clock.now_ms())
    return HTMLResponse(pages.sandbox(view), headers=dict(POLICY))


@router.get("/usage")
async def usage(request: Request, context: App, owner: Owner, _: PagesOfConsole) -> Response:
    """What the sandboxes of one page use: by id, without those that do not run or do not answer."""
    ids = request.query_params.getlist("id")
    if request.query_params.keys() - {"id"} or not 1 <= len(ids) <= PER_PAGE:
        raise Problem("invalid_argument", f"give id=ID, 1 to {PER_PAGE} times", field="id")
    found = await _within(context.service.console_views.usage(owner, ids))
    return JSONResponse({name: used(one) for name, one in found.items()}, headers=dict(POLICY))


@router.get("/static/{name}")
async def static(name: str, _: Owner, pages: PagesOfConsole) -> Response:
    """A file that pages load."""
    file = pages.file(name)
    if file is None:
        raise Problem("not_found", f"the console has no file {name[:64]!r}")
    return Response(file.content, media_type=file.media_type, headers=dict(POLICY))


async def _within(call: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(WITHIN_S):
            return await call
    except TimeoutError as error:
        detail = f"the control plane's store has not answered within {WITHIN_S:.0f} s"
        raise Problem("upstream_timeout", detail, retry_after_ms=1000) from error


async def _pools(context: Context) -> tuple[Sequence[Shown], str]:
    try:
        return await context.service.pools.list(), ""
    except Problem as problem:
        return [], f"Pools could not be read: {problem.code}: {problem.detail}"


async def _others(context: Context, *, operates: bool) -> Sequence[QuotaUse]:
    """The declared quotas, for operators."""
    if not operates:
        return []
    service = context.service
    return await asyncio.gather(*(service.quota_use(one) for one in sorted(service.quotas.declared)[:MOST_QUOTAS]))


async def _told(context: Context, one: Sandbox) -> Told:
    service, pulling = context.service, await context.service.pulling(one)
    refusal = service.refusal(one)
    if one.state is not State.RUNNING:
        ended = "It has ended: which commands ran in it is not known any more." if one.end else "It is not ready yet."
        return Told(refusal, pulling, None, ended)
    try:
        return Told(refusal, pulling, await service.console_views.commands(one))
    except Problem as problem:
        trouble = f"Its commands are not known now: {problem.code}: {problem.detail}"
        return Told(refusal, pulling, None, trouble, await service.console_views.silence(one))


def _single(request: Request) -> dict[str, str]:
    found = request.query_params
    if twice := next((name for name in found if len(found.getlist(name)) > 1), None):
        raise Problem("invalid_argument", f"{twice[:64]!r} must not be given twice", field=twice[:64])
    return dict(found)
