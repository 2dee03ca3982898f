// The TypeScript SDK of the current revision, as published: node v2.mjs COMMAND WORDS...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { cases } from "./cases.mjs";

await cases(Client, StdioClientTransport, (client, request, options) => client.callTool(request, options), {
  versionNegotiation: { mode: "auto" },
});
