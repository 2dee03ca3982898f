"""The door of the lifecycle: what the API asks for, from top to bottom.

``groups`` -> ``sandboxes`` (``Sandboxes``, all that the API calls) -> ``composition`` (puts all parts together) ->
``creates`` and ``owner_calls`` (what owners do with sandboxes that they want, and that they have).
"""
