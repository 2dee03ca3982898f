"""``RegistryApi``: what is asked of the private registry: its repositories, their tags, what these stand for."""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

import aiohttp

from controlplane.cluster.kubernetes.node_agents.registry_account import RegistryAccount, read_within

# Manifests and configurations; an image with the most layers that nodes take has a tenth of it.
MAX_BYTES: Final = 4 << 20
PAGE: Final = 1000
_NEXT: Final = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
# Registries hide what is not asked for, whatever `*/*` says.
_MANIFESTS: Final = ", ".join(
    f"application/vnd.{kind}"
    for kind in (
        "oci.image.manifest.v1+json",
        "oci.image.index.v1+json",
        "docker.distribution.manifest.v2+json",
        "docker.distribution.manifest.list.v2+json",
    )
)


class RegistryApi:
    """A registry's API.

    Args:
        session: has its address.
        account: what it is shown; None: nothing.
    """

    def __init__(self, session: aiohttp.ClientSession, account: RegistryAccount | None = None) -> None:
        self._session = session
        self._account = account

    async def repositories(self, folder: str) -> Sequence[str]:
        """Those below a folder. All of one first part come one after the other, whatever a registry sorts by."""
        found: list[str] = []
        seen: set[str] = set()
        top, query = f"{folder.partition('/')[0]}/", _after(folder)
        while query:
            page, query = await self._page("_catalog", query, "repositories", seen)
            found += [one for one in page if one.startswith(f"{folder}/")]
            # Not every registry begins where it is asked to: what comes before the folder says nothing.
            if page and min(page) > folder and not page[-1].startswith(top):
                break
            if not query and len(page) >= PAGE:
                query = _after(page[-1])
        return found

    async def tags(self, repository: str) -> Sequence[str]:
        """The tags of a repository; none: it is gone.

        Registries that tell them in parts say where the next one is; others tell all, whatever they are asked.
        """
        found: list[str] = []
        seen: set[str] = set()
        query = f"n={PAGE}"
        while query:
            try:
                page, query = await self._page(f"{repository}/tags/list", query, "tags", seen)
            except aiohttp.ClientResponseError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return []
                raise
            found += page
        return found

    async def _page(self, path: str, query: str, field: str, seen: set[str]) -> tuple[list[str], str]:
        """What a part of a list has that was not seen, and the query of the next part; empty: this is the last one.

        Raises:
            ValueError: the next part is somewhere else, or the parts do not come to an end.
        """
        _, headers, text = await self.call("GET", f"{path}?{query}")
        page = [one for one in map(str, json.loads(text).get(field) or ()) if one not in seen]
        following = _next(path, headers.get("Link", ""))
        if following and not page:
            raise ValueError(f"{path} leads from part to part, and {query} has nothing new")
        seen.update(page)
        return page, following

    async def digest(self, repository: str, tag: str) -> str:
        """What a tag stands for; empty: it is gone."""
        status, headers, _ = await self.call("HEAD", f"{repository}/manifests/{tag}", none=(HTTPStatus.NOT_FOUND,))
        return str(headers["Docker-Content-Digest"]) if status == HTTPStatus.OK else ""

    async def json(self, path: str) -> dict[str, Any] | None:
        """What is at a path; None: nothing."""
        status, _, text = await self.call("GET", path, none=(HTTPStatus.NOT_FOUND,))
        read: dict[str, Any] | None = json.loads(text) if status == HTTPStatus.OK else None
        return read

    async def call(self, method: str, path: str, *, none: Sequence[int] = ()) -> tuple[int, Any, bytes]:
        """Status, headers and body of an answer; statuses in ``none`` are no failure.

        Raises:
            ValueError: the answer is too long.
            aiohttp.ClientError: the registry does not answer, or with another status.
        """
        value = "" if self._account is None else self._account.known(method, path)
        async with self._sent(method, path, value) as answer:
            if answer.status != HTTPStatus.UNAUTHORIZED or self._account is None:
                return await _read(path, answer, none)
            asked = answer.headers.getall("WWW-Authenticate", ())
        value = await self._account.answer(method, path, asked)
        async with self._sent(method, path, value) as answer:
            return await _read(path, answer, none)

    def _sent(self, method: str, path: str, value: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        shown = {"Authorization": value} if value else {}
        return self._session.request(method, path, headers={"Accept": f"{_MANIFESTS}, */*", **shown})


async def _read(path: str, answer: aiohttp.ClientResponse, none: Sequence[int]) -> tuple[int, Any, bytes]:
    text = await read_within(answer, MAX_BYTES)
    if answer.status not in none:
        answer.raise_for_status()
    if text is None:
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes")
    return answer.status, answer.headers, text


def _after(name: str) -> str:
    return f"n={PAGE}&last={quote(name, safe='')}"


def _next(path: str, link: str) -> str:
    """The query of the next part of a list; empty: there is none. A link is not followed to another host or path.

    Raises:
        ValueError: there is one, and it is somewhere else.
    """
    found = _NEXT.search(link)
    if found is None:
        return ""
    to = urlsplit(urljoin(f"/v2/{path}", found[1]))
    if not to.path.endswith(f"/v2/{path}") or not to.query:
        raise ValueError(f"{path} goes on at {found[1]}, which is no part of it")
    return str(to.query)
