// An agent of Vercel's `ai`, whose model is scripted: its tool runs commands in a sandbox by E2B's SDK.
import { generateText, stepCountIs, tool } from 'ai'
import { MockLanguageModelV3 } from 'ai/test'
import { CommandExitError, Sandbox } from 'e2b'
import { z } from 'zod'

const CHECK = `python3 -B -c 'import add; assert add.add(1, 2) == 3' && echo solved`
const solve = (sign) => `printf 'def add(a, b):\\n    return a ${sign} b\\n' > add.py`
const COMMANDS = [solve('-'), CHECK, solve('+'), CHECK]
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
}
const reason = (unified) => ({ unified, raw: unified })

function scripted() {
  const steps = COMMANDS.map((command, at) => ({
    content: [{ type: 'tool-call', toolCallId: `${at}`, toolName: 'run', input: JSON.stringify({ command }) }],
    finishReason: reason('tool-calls'),
    usage,
    warnings: [],
  }))
  const last = { content: [{ type: 'text', text: 'done' }], finishReason: reason('stop'), usage, warnings: [] }
  return new MockLanguageModelV3({ doGenerate: [...steps, last] })
}

const cases = {
  async agent(sandbox) {
    const run = tool({
      description: 'Run a command of the shell.',
      inputSchema: z.object({ command: z.string() }),
      async execute({ command }) {
        try {
          return (await sandbox.commands.run(command, { cwd: '/tmp' })).stdout
        } catch (error) {
          if (error instanceof CommandExitError) return `exit ${error.exitCode}\n${error.stderr}`
          throw error
        }
      },
    })
    const { text, steps } = await generateText({
      model: scripted(),
      prompt: 'Solve it.',
      tools: { run },
      stopWhen: stepCountIs(9),
    })
    const told = steps.flatMap((step) => step.toolResults.map((result) => result.output))
    return { wrong: told[1].includes('AssertionError'), right: told[3], said: text }
  },
  async lost(sandbox) {
    // The sandbox ends in the middle of an agent's work: its tool says so.
    const mine = await Sandbox.create(process.env.IMAGE, { timeoutMs: 60_000 })
    const run = tool({
      description: 'Run a command of the shell.',
      inputSchema: z.object({ command: z.string() }),
      async execute({ command }) {
        await mine.kill()
        return (await mine.commands.run(command)).stdout
      },
    })
    const { steps } = await generateText({
      model: scripted(),
      prompt: 'Solve it.',
      tools: { run },
      stopWhen: stepCountIs(1),
    })
    const failed = steps[0].content.filter((part) => part.type === 'tool-error').map((part) => part.error)
    return { errors: failed.map((error) => [error.constructor.name, error.message]) }
  },
}

const sandbox = await Sandbox.create(process.env.IMAGE, { timeoutMs: 300_000 })
for (const [name, run] of Object.entries(cases)) {
  let told
  try {
    told = { case: name, saw: await run(sandbox) }
  } catch (error) {
    told = { case: name, error: [error.constructor.name, String(error.message)] }
  }
  console.log(JSON.stringify(told))
}
await sandbox.kill()
