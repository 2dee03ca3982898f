// What a client of the TypeScript SDK sees, as one line of JSON.
const [command, ...args] = process.argv.slice(2);

export async function cases(Client, Transport, call, options = {}) {
  const client = new Client({ name: "tests", version: "1" }, options);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => /^(ROLLBOX_|PATH$)/.test(name)));
  await client.connect(new Transport({ command, args, env }));
  const saw = { server: client.getServerVersion().name };
  // The client checks each structured content against the schema that it has listed.
  saw.tools = (await client.listTools()).tools.map((tool) => tool.name);
  const made = await call(client, { name: "create_sandbox", arguments: {} });
  const at = { sandbox_id: made.structuredContent.sandbox_id };
  const run = (name, given, more) => call(client, { name, arguments: { ...at, ...given } }, more);

  const done = (await run("run_command", { command: "echo out; echo err >&2; exit 3" })).structuredContent;
  saw.command = [done.exit_code, done.stdout, done.stderr];
  saw.cell = (await run("run_code", { code: "6 * 7" })).structuredContent.value;
  const failed = await run("read_file", { path: "/no/such" });
  saw.failed = [failed.isError, failed.structuredContent.code, failed.structuredContent.mask_sample];

  let heard = 0;
  await run("run_command", { command: "sleep 5" }, { onprogress: () => heard++ });
  saw.progress = heard > 0;

  const running = async () => (await run("run_command", { command: "pgrep -f 'sleep [3]16'" })).structuredContent.exit_code;
  const wanted = new AbortController();
  const late = run("run_command", { command: "sleep 316" }, { signal: wanted.signal }).catch((error) => error);
  while ((await running()) !== 0);
  wanted.abort();
  await late;
  while ((await running()) !== 1);
  saw.cancelled = true;
  await client.close();
  console.log(JSON.stringify(saw));
}
