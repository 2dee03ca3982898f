#!/usr/bin/env bash
# MCP's TypeScript client 1.x: a tool's result with isError whose structured content is not of the tool's output schema
# is thrown away for an exception about the schema, so that the error's own text is never seen. Client 2.x hands it on.
# Needs node (20 or later) and npm.
set -euo pipefail
old=1.32.2
new=2.4.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
echo '{"private": true, "type": "module"}' >package.json
npm install --silent --ignore-scripts --no-audit --no-fund "@modelcontextprotocol/sdk@$old" "@modelcontextprotocol/client@$new"
echo "@modelcontextprotocol/sdk $old, @modelcontextprotocol/client $new"

# A server by hand, so that no SDK's own check stands between.
cat >server.mjs <<'END'
import { createInterface } from "node:readline";

const tool = {
  name: "fails",
  inputSchema: { type: "object" },
  outputSchema: { type: "object", properties: { answer: { type: "number" } }, required: ["answer"] },
};
const results = {
  initialize: {
    protocolVersion: "2025-11-25",
    capabilities: { tools: {} },
    serverInfo: { name: "by hand", version: "1" },
  },
  "tools/list": { tools: [tool] },
  "tools/call": {
    isError: true,
    content: [{ type: "text", text: "the disk is full" }],
    structuredContent: { reason: "the disk is full" },
  },
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const known = results[method];
  const said = known ? { result: known } : { error: { code: -32601, message: "Method not found" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...said }));
});
END

probe() {  # CLIENT_MODULE TRANSPORT_MODULE
  cat >probe.mjs <<END
import { Client } from "$1";
import { StdioClientTransport } from "$2";

const client = new Client({ name: "probe", version: "1" });
await client.connect(new StdioClientTransport({ command: process.execPath, args: ["server.mjs"] }));
await client.listTools();
try {
  const result = await client.callTool({ name: "fails", arguments: {} });
  console.log("result:", result.content[0].text);
} catch (error) {
  console.log("thrown:", error.message.split(":").slice(0, 2).join(":"));
}
await client.close();
END
  node probe.mjs
}
expect() {  # WHO SEEN EXPECTED
  echo "$1: $2"
  [[ $2 == "$3" ]] || { echo "the finding says: $3" >&2; exit 1; }
}
expect "1.x" "$(probe @modelcontextprotocol/sdk/client/index.js @modelcontextprotocol/sdk/client/stdio.js)" \
  "thrown: MCP error -32602: Structured content does not match the tool's output schema"
expect "2.x" "$(probe @modelcontextprotocol/client @modelcontextprotocol/client/stdio)" "result: the disk is full"
