// What a user does with E2B's SDK for JavaScript, a case a function; as e2b_cases.py.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { CommandExitError, Sandbox, Template } from 'e2b'

const fails = (error) => [error.constructor.name, String(error.message)]

async function refused(call) {
  try {
    await call()
  } catch (error) {
    return fails(error)
  }
  return ['nothing', '']
}

const cases = {
  async info(sandbox) {
    const told = await sandbox.getInfo()
    return { template: told.templateId, metadata: told.metadata, running: await sandbox.isRunning() }
  },
  async pages() {
    const metadata = { mark: `${process.pid}-${Date.now()}` }
    const made = []
    for (let n = 0; n < 3; n++) made.push(await Sandbox.create({ timeoutMs: 60_000, metadata }))
    const listed = Sandbox.list({ query: { metadata }, limit: 2 })
    const sizes = []
    while (listed.hasNext) sizes.push((await listed.nextItems()).length)
    const killed = []
    for (const one of made) killed.push(await one.kill())
    return { sizes, killed }
  },
  async killed() {
    const mine = await Sandbox.create({ timeoutMs: 60_000 })
    const kills = [await mine.kill(), await Sandbox.kill(mine.sandboxId)]
    return { kills, running: await mine.isRunning() }
  },
  async notSupported(sandbox) {
    const serving = Template().fromImage(process.env.IMAGE).setStartCmd('sleep 1', 'true')
    const calls = {
      pause: () => sandbox.pause(),
      memory: () => sandbox.createSnapshot(),
      metrics: () => sandbox.getMetrics(),
      start: () => Template.build(serving, `case-js-${process.pid}-serving`),
      fork: () => sandbox.fork(),
    }
    const says = {}
    for (const [name, call] of Object.entries(calls)) says[name] = (await refused(call))[1].includes('not supported')
    return { says, running: await sandbox.isRunning() }
  },
  async ran(sandbox) {
    const { stdout, stderr, exitCode } = await sandbox.commands.run('echo out; echo err >&2')
    return { stdout, stderr, exitCode }
  },
  async failed(sandbox) {
    try {
      await sandbox.commands.run('exit 3')
    } catch (error) {
      return { typed: error instanceof CommandExitError, code: error.exitCode }
    }
  },
  async withInput(sandbox) {
    const command = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
    await sandbox.commands.sendStdin(command.pid, 'words\n')
    return { stdout: (await command.wait()).stdout }
  },
  async terminal(sandbox) {
    let seen = ''
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (seen += Buffer.from(data)) })
    await sandbox.pty.sendInput(pty.pid, Buffer.from('echo $((6*7)); exit\n'))
    await pty.wait()
    return { says: seen.includes('42') }
  },
  async files(sandbox) {
    await sandbox.files.write('/tmp/js/a', 'h\u00e9')
    const made = [await sandbox.files.makeDir('/tmp/js/d'), await sandbox.files.makeDir('/tmp/js/d')]
    return {
      text: await sandbox.files.read('/tmp/js/a'),
      made,
      listed: (await sandbox.files.list('/tmp/js')).map((one) => [one.name, one.type]).sort(),
      missing: (await refused(() => sandbox.files.read('/no/such')))[0],
      left: await sandbox.files.exists('/no/such'),
    }
  },
  async watched(sandbox) {
    await sandbox.files.makeDir('/tmp/js-watched')
    let told
    const came = new Promise((resolve) => (told = resolve))
    const handle = await sandbox.files.watchDir('/tmp/js-watched', (event) => event.name === 'new' && told())
    await sandbox.files.write('/tmp/js-watched/new', 'x')
    await came
    await handle.stop()
    return { created: true }
  },
  async templates() {
    const name = `case-js-${process.pid}`
    const folder = mkdtempSync('/tmp/case-js-')
    writeFileSync(`${folder}/f`, 'copied\n')
    const template = Template({ fileContextPath: folder })
      .fromImage(process.env.IMAGE)
      .copy('f', '/app/f')
      .runCmd('echo ran > /app/ran')
      .setWorkdir('/app')
    await Template.build(template, name)
    rmSync(folder, { recursive: true })
    const mine = await Sandbox.create(name, { timeoutMs: 60_000 })
    const { stdout } = await mine.commands.run('cat f ran')
    await mine.kill()
    const there = await Template.exists(name)
    const headers = { 'X-API-Key': process.env.E2B_API_KEY }
    await fetch(`${process.env.E2B_API_URL}/templates/${name}`, { method: 'DELETE', headers })
    return { there, stdout }
  },
}

const sandbox = await Sandbox.create('base', { timeoutMs: 3_600_000, metadata: { k: 'v' } })
for (const [name, one] of Object.entries(cases)) {
  let told
  try {
    told = { case: name, saw: await one(sandbox) }
  } catch (error) {
    told = { case: name, error: fails(error) }
  }
  console.log(JSON.stringify(told))
}
await sandbox.kill()
