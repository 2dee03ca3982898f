"""The routes of the control plane's API: those of its OpenAPI document, and those below /v1 that this leaves out."""

import re

from controlplane.api.app import bare_app


def routes(*, hidden: bool = True) -> set[tuple[str, str]]:
    """Method and path of each; ``hidden``: with those that the document leaves out."""
    included = (one for one in bare_app().routes if hasattr(one, "effective_route_contexts"))
    found = [context for one in included for context in one.effective_route_contexts()]
    return {
        (method, re.sub(r"\{(\w+):path\}", r"{\1}", context.path))
        for context in found
        for method in context.methods
        if context.path.startswith("/v1/") and (hidden or context.include_in_schema)
    }
