"""MCP clients, as they are published, that have started `rollbox mcp`."""
