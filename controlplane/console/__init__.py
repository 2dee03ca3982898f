"""The console's pages: what the lifecycle tells becomes HTML. Pure; ``api.console`` has the routes.

May import lifecycle, model, cluster (its values), errors. The only package that imports Jinja2.
"""

from controlplane.console.overview import Asked, Overview
from controlplane.console.pages import POLICY, Pages
from controlplane.console.sandbox import SandboxStory

__all__ = ["POLICY", "Asked", "Overview", "Pages", "SandboxStory"]
