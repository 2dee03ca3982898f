"""``RegistryApi``: what is asked of the private registry about the images that were made of sandboxes."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp

# Manifests and configurations; an image with the most layers that nodes take has a tenth of it.
MAX_BYTES: Final = 4 << 20
PAGE: Final = 1000
_NEXT: Final = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_MANIFESTS: Final = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


class RegistryApi:
    """A registry's API, over a session that has its address and the account."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def repositories(self, folder: str) -> Sequence[str]:
        """Those below a folder. All of one first part come one after the other, whatever a registry sorts by."""
        found: list[str] = []
        last, top = folder, f"{folder.partition('/')[0]}/"
        while True:
            _, headers, text = await self.call("GET", f"_catalog?n={PAGE}&last={quote(last, safe='')}")
            page = [str(one) for one in json.loads(text)["repositories"] or ()]
            found += [one for one in page if one.startswith(f"{folder}/")]
            # A registry may tell fewer than it is asked for, and then says that there are more.
            more = len(page) >= PAGE or _NEXT.search(headers.get("Link", ""))
            if not page or not more or not page[-1].startswith(top):
                return found
            last = page[-1]

    async def tags(self, repository: str) -> Sequence[str]:
        """The tags of a repository; none: it is gone.

        Registries that tell them in parts say where the next one is; others tell all, whatever they are asked.
        """
        found: list[str] = []
        path = f"{repository}/tags/list?n={PAGE}"
        while path:
            status, headers, text = await self.call("GET", path, none=(HTTPStatus.NOT_FOUND,))
            if status != HTTPStatus.OK:
                return []
            found += [str(one) for one in json.loads(text).get("tags") or ()]
            path = _next(repository, headers.get("Link", ""))
        return found

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
        async with self._session.request(method, path, headers={"Accept": f"{_MANIFESTS}, */*"}) as answer:
            text = await answer.content.read(MAX_BYTES + 1)
            while not answer.content.at_eof() and len(text) <= MAX_BYTES:
                text += await answer.content.read(MAX_BYTES + 1)
            if answer.status not in none:
                answer.raise_for_status()
            if len(text) > MAX_BYTES:
                raise ValueError(f"{path} has more than {MAX_BYTES} bytes")
            return answer.status, answer.headers, text


def _next(repository: str, link: str) -> str:
    """The path of the next part of a repository's tags; empty: there is none. Of the link only what it begins after."""
    found = _NEXT.search(link)
    last = parse_qs(urlsplit(found[1]).query).get("last", [""])[0] if found else ""
    return f"{repository}/tags/list?n={PAGE}&last={quote(last, safe='')}" if last else ""
