// The TypeScript SDK that most hosts have, as published: node v1.mjs COMMAND WORDS...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { cases } from "./cases.mjs";

await cases(Client, StdioClientTransport, (client, request, options) => client.callTool(request, undefined, options));
