// The program that runs cells in the image's Node: `require`, `process` and `frames` (a descriptor) are given to it, and
// requests come on `requests`. Its frames are those of wire.py. Node's own REPL evaluates, without its terminal.
'use strict';
const childProcess = require('child_process');
const fs = require('fs');
const inspector = require('inspector');
const net = require('net');
const repl = require('repl');
const stream = require('stream');
const util = require('util');
const vm = require('vm');

const HOLD_MS = 20;
const FRAME_BYTES = 2 ** 18;
const BACKGROUND_BYTES = 2 ** 16;
const RECORDS = 1024;
const RECORDS_BYTES = 2 ** 22;
const RECORD_BYTES = 2 ** 20;
const TEXT_BYTES = 2 ** 20;
const PART_BYTES = 2 ** 23;
const CELL_BYTES = 2 ** 25;
const CELL_RESULTS = 1000;
const BINARY = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'application/pdf'];
const KINDS = ['O', 'E'];
const INTERRUPTED = 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
const SHOWS = Symbol.for('Jupyter.display');

const now = Date.now;
const cut = (text, most) => Buffer.from(String(text)).subarray(0, most);

function encoded(kind, ...fields) {
  const parts = [];
  let size = 0;
  for (const field of fields) {
    const data = Buffer.isBuffer(field) ? field : Buffer.from(String(field));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    parts.push(length, data);
    size += 4 + data.length;
  }
  const head = Buffer.alloc(5);
  head.write(kind, 'latin1');
  head.writeUInt32BE(size, 1);
  return Buffer.concat([head, ...parts]);
}

function send(data) {
  for (let at = 0; at < data.length; ) at += fs.writeSync(frames, data, at);
}

// What cells print and show.
const output = {
  running: false,
  most: 0,
  totals: [0, 0],
  background: [Buffer.alloc(0), Buffer.alloc(0)],
  record: [],
  recorded: 0,
  pending: [],
  bytes: 0,
  sentAt: 0,
  timer: null,
  results: 0,
  resultBytes: 0,
  omitted: 0,

  begin(most) {
    Object.assign(this, { running: true, most, totals: [0, 0], record: [], recorded: 0, sentAt: 0 });
    Object.assign(this, { results: 0, resultBytes: 0, omitted: 0 });
    this.background.forEach((data, at) => data.length && this.frame(encoded('B', KINDS[at], data)));
    this.background = [Buffer.alloc(0), Buffer.alloc(0)];
    printing();
  },

  print(at, data) {
    if (!this.running) {
      this.background[at] = Buffer.concat([this.background[at], data]).subarray(0, BACKGROUND_BYTES);
      return;
    }
    const room = Math.max(0, this.most - this.totals[at]);
    this.totals[at] += data.length;
    for (let from = 0; from < Math.min(data.length, room); from += FRAME_BYTES) {
      this.frame(encoded(KINDS[at], data.subarray(from, Math.min(from + FRAME_BYTES, room))));
    }
  },

  frame(data) {
    this.pending.push(data);
    this.bytes += data.length;
    if (this.bytes >= FRAME_BYTES || now() - this.sentAt > HOLD_MS) this.flush();
    else if (this.timer === null) this.timer = setTimeout(() => this.flush(), HOLD_MS).unref();
  },

  flush() {
    clearTimeout(this.timer);
    const data = Buffer.concat(this.pending);
    Object.assign(this, { timer: null, pending: [], bytes: 0, sentAt: now() });
    if (this.record !== null && (this.recorded += data.length) <= RECORD_BYTES) this.record.push(data);
    else this.record = null;
    send(data);
  },

  show(forms, main) {
    if (++this.results > CELL_RESULTS) {
      this.omitted += 1;
      return;
    }
    const parts = [];
    let flags = main ? 'main' : '';
    for (const [mime, value] of Object.entries(forms)) {
      let data = bytes(mime, value);
      if (mime === 'text/plain' && data.length > TEXT_BYTES) {
        data = data.subarray(0, TEXT_BYTES);
        flags += ' cut';
      }
      if (data.length > PART_BYTES || this.resultBytes + data.length > CELL_BYTES) {
        this.omitted += 1;
        continue;
      }
      this.resultBytes += data.length;
      parts.push(mime, data);
    }
    this.frame(encoded('R', flags, ...parts));
  },
};

function bytes(mime, value) {
  if (value instanceof Uint8Array) return Buffer.from(value);
  if (typeof value === 'string') return Buffer.from(value, BINARY.includes(mime) ? 'base64' : 'utf8');
  return Buffer.from(JSON.stringify(value) ?? 'null');
}

function forms(value) {
  const own = value !== null && typeof value === 'object' && typeof value[SHOWS] === 'function' ? value[SHOWS]() : {};
  return { 'text/plain': util.inspect(value), ...own };
}

function writer(at) {
  return (chunk, encoding, done) => {
    output.print(at, typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk));
    const told = typeof encoding === 'function' ? encoding : done;
    if (told) process.nextTick(told);
    return true;
  };
}

const writers = [writer(0), writer(1)];

function printing() {
  process.stdout.write = writers[0];
  process.stderr.write = writers[1];
}

// Sub-processes that are to print where this one does: by a pipe, since descriptors 1 and 2 are the client's at the end.
function piped(stdio) {
  const all = typeof stdio === 'string' ? [stdio, stdio, stdio] : [...(stdio ?? [])];
  const streams = [process.stdin, process.stdout, process.stderr];
  const taken = [1, 2].filter((fd) => all[fd] === 'inherit' || all[fd] === fd || all[fd] === streams[fd]);
  for (const fd of taken) all[fd] = 'pipe';
  return [all, taken];
}

const spawned = childProcess.ChildProcess.prototype.spawn;
childProcess.ChildProcess.prototype.spawn = function spawn(options) {
  const [stdio, taken] = piped(options.stdio);
  const result = spawned.call(this, taken.length ? { ...options, stdio } : options);
  for (const fd of taken) this.stdio[fd]?.on('data', (data) => output.print(fd - 1, data));
  return result;
};
for (const name of ['spawnSync', 'execSync', 'execFileSync']) {
  const whole = childProcess[name];
  childProcess[name] = (...args) => {
    const at = args.findIndex((one) => one !== null && typeof one === 'object' && !Array.isArray(one));
    const [stdio, taken] = at < 0 ? [null, []] : piped(args[at].stdio);
    if (!taken.length) return whole(...args);
    args[at] = { ...args[at], stdio };
    const print = (found) => taken.forEach((fd) => found?.[fd] && output.print(fd - 1, Buffer.from(found[fd])));
    if (name === 'spawnSync') {
      const result = whole(...args);
      print(result.output);
      return result;
    }
    try {
      const stdout = whole(...args);
      print([null, stdout]);
      return taken.includes(1) ? null : stdout;
    } catch (error) {
      print(error.output);
      throw error;
    }
  };
}

const quiet = new stream.Writable({
  write(chunk, encoding, done) {
    output.print(1, Buffer.from(chunk));
    done();
  },
});
process.on('uncaughtException', (error) => {
  output.print(1, Buffer.from(`Uncaught ${error instanceof Error ? error.stack : util.inspect(error)}\n`));
});
const server = repl.start({
  prompt: '',
  input: new stream.PassThrough(),
  output: quiet,
  terminal: false,
  useGlobal: true,
  breakEvalOnSigint: true,
});
// Where the REPL has a domain, errors of a cell go there and its callback is not called.
if (server._domain) server._domain.enter = server._domain.exit = () => {};
process.on('SIGINT', () => output.running && server.emit('SIGINT'));
process.on('exit', () => output.running && output.flush());
globalThis.display = (...values) => values.forEach((value) => output.show(forms(value), false));
const session = new inspector.Session();
session.connect();

function lexical() {
  let found = [];
  session.post('Runtime.globalLexicalScopeNames', {}, (error, result) => {
    found = error ? [] : result.names;
  });
  return found;
}

const given = new Set([...Object.getOwnPropertyNames(globalThis), ...lexical()]);

function variables() {
  const rows = [];
  const names = new Set([...Object.getOwnPropertyNames(globalThis), ...lexical()]);
  for (const name of names) {
    if (given.has(name) || name.startsWith('_') || rows.length === 10000) continue;
    let row;
    try {
      const value = vm.runInThisContext(name);
      const kind = value === null ? 'null' : typeof value === 'object' ? value.constructor?.name ?? 'Object' : typeof value;
      row = [name, kind, cut(util.inspect(value), 200)];
    } catch (error) {
      row = [name, 'unknown', `<no text: ${error?.name}>`];
    }
    rows.push(row);
  }
  output.frame(encoded('R', 'variables', ...rows.flat()));
}

function told(error) {
  if (error instanceof repl.Recoverable) return told(error.err);
  if (error?.code === INTERRUPTED) return [INTERRUPTED, 'the cell was interrupted', ''];
  const own = error !== null && typeof error === 'object' && 'message' in error && 'name' in error;
  if (!own) return ['Thrown', cut(util.inspect(error), 2 ** 14), ''];
  const lines = String(error.stack ?? '').split('\n');
  const last = lines.findIndex((line) => /^ +at .*(node:vm|node:repl|<rollbox node>|REPLServer)/.test(line));
  const trace = (last < 0 ? lines : lines.slice(0, last)).join('\n') + '\n';
  return [cut(error.name, 2 ** 10), cut(error.message, 2 ** 14), cut(trace, 2 ** 16)];
}

let count = 0;

function evaluated(code) {
  return new Promise((resolve) => {
    const done = (error, value) => resolve([error, value]);
    // To take one away while a script runs makes an interrupt deadly, and Node does that for its own watch.
    const listeners = process.listeners('SIGINT');
    process.removeAllListeners('SIGINT');
    try {
      server.eval(`${code}\n`, server.context, `<cell ${count}>`, done);
    } catch (error) {
      resolve([error]);
    } finally {
      for (const one of listeners) process.on('SIGINT', one);
    }
  });
}

async function outcome(kind, fields) {
  try {
    if (kind === 'V') {
      variables();
      return [];
    }
    count += 1;
    const [error, value] = await evaluated(fields[1].toString());
    if (error !== null && error !== undefined) return told(error);
    if (value !== undefined) output.show(forms(value), true);
    return [];
  } catch (error) {
    return told(error);
  }
}

const records = new Map();
let recordBytes = 0;

function keep(key, record) {
  records.set(key, record);
  recordBytes += record.length;
  while (recordBytes > RECORDS_BYTES || records.size > RECORDS) {
    const [oldest, data] = records.entries().next().value;
    records.delete(oldest);
    recordBytes -= data.length;
  }
}

async function answer(kind, fields) {
  const key = fields[0].toString();
  if (records.has(key)) {
    send(records.get(key));
    return;
  }
  output.begin(Number(fields.at(-1)));
  const started = process.hrtime.bigint();
  const error = await outcome(kind, fields);
  const took = (process.hrtime.bigint() - started) / 1000n;
  const final = encoded('F', key, [count, took, ...output.totals, output.omitted].join(' '), ...error);
  output.frame(final);
  output.flush();
  output.running = false;
  keep(key, output.record === null ? final : Buffer.concat(output.record));
}

let received = Buffer.alloc(0);
let answering = false;

async function serve() {
  if (answering) return;
  answering = true;
  while (received.length >= 5 && received.length >= 5 + received.readUInt32BE(1)) {
    const size = 5 + received.readUInt32BE(1);
    const request = received.subarray(0, size);
    received = received.subarray(size);
    const fields = [];
    for (let at = 5; at < size; ) {
      const end = at + 4 + request.readUInt32BE(at);
      fields.push(request.subarray(at + 4, end));
      at = end;
    }
    await answer(String.fromCharCode(request[0]), fields);
  }
  answering = false;
}

const { reallyExit } = process;
const input = new net.Socket({ fd: requests, readable: true, writable: false });
input.on('data', (data) => {
  received = Buffer.concat([received, data]);
  serve();
});
input.on('end', () => reallyExit.call(process, 0));
printing();
send(encoded('H', '1', process.versions.node));
