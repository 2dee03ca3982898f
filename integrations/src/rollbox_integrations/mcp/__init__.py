"""An MCP server, `rollbox mcp`: sandboxes as tools of any MCP client, over stdio or streamable HTTP.

Layers, lowest first: settings, outputs, excerpts < inputs, pictures (pure up to here) < sandboxes < lifecycle,
commands, cells, files, ports (what the tools do) < catalogue (how they are described) < server < http, stdio.
"""

from rollbox_integrations.versions import require

require("mcp", "2.0.0", "mcp")
