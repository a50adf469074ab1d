// lib.mjs - what the tests of this folder share: servers, metrics, raw connections.
//
// From the environment: NB_NIBBLE (the program), NB_MODEL (the bundled model), NB_TMP (a folder).
import { spawn, spawnSync } from "node:child_process";
import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";

export const NIBBLE = process.env.NB_NIBBLE;
export const MODEL = process.env.NB_MODEL;
export const TMP = process.env.NB_TMP;
export const NAME = "nibble-tiny";
export const WAIT_MS = 120000; // for what must come; nothing is measured
const POLL_MS = 20;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const children = new Set();
process.on("exit", () => children.forEach((c) => c.kill("SIGKILL")));

export function hasProgram(name) {
  return spawnSync(name, ["--version"], { stdio: "ignore" }).error === undefined;
}

// A child that does not outlive this process, where that can be had.
const leash = hasProgram("setpriv") ? ["setpriv", "--pdeathsig", "KILL"] : [];

export function start(command, options) {
  const [file, ...args] = [...leash, ...command];
  const child = spawn(file, args, options);
  child.unref(); // a test that fails must not wait for its server
  children.add(child);
  const ended = new Promise((done) =>
    child.on("exit", (code, signal) => {
      children.delete(child);
      done({ code, signal });
    }));
  child.end = (signal) => {
    child.ref();
    child.kill(signal);
    return ended;
  };
  ended.then((how) => (child.how = how));
  return child;
}

let nServers = 0;

// A running server: { port, url, log(), stop() }.
export class Server {
  static async start(args = [], { port = ["--port", "0"], env = {}, program = NIBBLE } = {}) {
    const s = new Server();
    s.logFile = path.join(TMP, `server-${process.pid}-${nServers++}.log`);
    const fd = fs.openSync(s.logFile, "w");
    const clean = Object.fromEntries(
      Object.entries(process.env).filter(([k]) => !k.endsWith("_API_KEY")));
    s.child = start([program, "serve", MODEL, "--kv-cache-dtype", "nvfp4",
      "--kv-cache-memory-bytes", "32M", ...port, ...args],
      { stdio: ["ignore", "ignore", fd], env: { ...clean, ...env } });
    fs.closeSync(fd);
    const until = Date.now() + WAIT_MS;
    for (;;) {
      const log = s.log();
      const at = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(log);
      if (at) {
        s.port = Number(at[1]);
        s.url = `http://127.0.0.1:${s.port}`;
        return s;
      }
      if (port[0] === "--uds" && log.includes("listening on")) return s;
      assert.equal(s.child.how, undefined, `the server ended: ${log}`);
      assert.ok(Date.now() < until, `the server does not listen: ${log}`);
      await sleep(POLL_MS);
    }
  }

  log() {
    return fs.readFileSync(this.logFile, "utf8");
  }

  // SIGTERM must end it well: also with a sanitizer, which would change the exit code.
  async stop() {
    assert.deepEqual(await this.child.end("SIGTERM"), { code: 0, signal: null }, this.log().slice(-2000));
  }

  async get(where) {
    return ask(this, "GET", where);
  }

  async post(where, body, headers) {
    return ask(this, "POST", where, body, headers);
  }

  // The sum over the label sets of a metric which contain all of `labels` (such as 'use="held"').
  async metric(name, ...labels) {
    return sumMetric((await this.get("/metrics")).text, name, ...labels);
  }

  // Waits until the condition over the text of /metrics is true.
  async until(what, condition) {
    const until = Date.now() + WAIT_MS;
    for (;;) {
      const { status, text } = await this.get("/metrics"); // 503: too many connections at the moment
      if (status === 200 && condition((name, ...labels) => sumMetric(text, name, ...labels))) return;
      if (Date.now() > until) {
        const lines = text.split("\n").filter((l) => /^(vllm:num_req|nibble:kv_pool|nibble:http)/.test(l));
        assert.fail(`never came: ${what}\n${lines.join("\n")}`);
      }
      await sleep(POLL_MS);
    }
  }

  // Nothing runs, waits or holds blocks.
  async idle() {
    await this.until("an idle server", (m) =>
      m("vllm:num_requests_running") + m("vllm:num_requests_waiting") +
        m("nibble:kv_pool_bytes", 'use="held"') === 0);
  }
}

export function sumMetric(text, name, ...labels) {
  let sum = 0, found = false;
  for (const line of text.split("\n")) {
    if (!line.startsWith(name) || !" {".includes(line[name.length])) continue;
    if (!labels.every((l) => line.includes(l))) continue;
    sum += Number(line.slice(line.lastIndexOf(" ") + 1));
    found = true;
  }
  assert.ok(found, `no metric ${name} ${labels}`);
  return sum;
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 256 });

// { status, headers, text, json }; a body that is not a string or a buffer is sent as JSON.
export function ask(server, method, where, body, headers = {}) {
  const data = body === undefined || typeof body === "string" || Buffer.isBuffer(body)
    ? body : JSON.stringify(body);
  const to = server.socketPath ? { socketPath: server.socketPath } : { port: server.port, agent };
  return new Promise((done, failed) => {
    const rq = http.request({ host: "127.0.0.1", ...to, method, path: where,
      headers: { ...(data === undefined ? {} : { "Content-Type": "application/json",
        "Content-Length": Buffer.byteLength(data) }), ...headers } }, (rs) => {
      const parts = [];
      rs.on("data", (d) => parts.push(d));
      rs.on("error", failed);
      rs.on("end", () => {
        const text = Buffer.concat(parts).toString();
        const isJson = (rs.headers["content-type"] || "").startsWith("application/json");
        done({ status: rs.statusCode, headers: rs.headers, text,
          json: isJson ? JSON.parse(text) : undefined });
      });
    });
    rq.on("error", failed);
    rq.end(data);
  });
}

// The data of each event of a stream of events, parsed; "[DONE]" stays as it is.
export function events(text) {
  return text.split("\n\n").filter((f) => f).map((frame) => {
    const data = frame.split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6));
    assert.equal(data.length, 1, `a frame with ${data.length} data lines: ${frame}`);
    return data[0] === "[DONE]" ? data[0] : JSON.parse(data[0]);
  });
}

// A connection for hostile bytes: what it sends and gets is bytes.
export class Raw {
  static open(server) {
    const r = new Raw();
    r.got = Buffer.alloc(0);
    r.closed = false;
    r.waiters = [];
    return new Promise((done, failed) => {
      r.socket = net.connect({ port: server.port, host: "127.0.0.1" }, () => done(r));
      r.socket.on("data", (d) => {
        r.got = Buffer.concat([r.got, d]);
        r.wake();
      });
      r.socket.on("error", () => {}); // a reset is an answer too: closed
      r.socket.on("close", () => {
        r.closed = true;
        r.wake();
      });
      r.socket.once("error", failed);
    });
  }

  wake() {
    this.waiters.splice(0).forEach((w) => w());
  }

  send(bytes) {
    if (!this.closed) this.socket.write(bytes);
  }

  async until(condition, what) {
    const timer = setTimeout(() => this.wake(), WAIT_MS);
    const until = Date.now() + WAIT_MS;
    try {
      for (;;) {
        const v = condition();
        if (v) return v;
        assert.ok(Date.now() < until, `hangs: ${what}`);
        await new Promise((w) => this.waiters.push(w));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  // The next whole answer, or null when the server has closed before one came.
  answer(what = "no answer") {
    return this.until(() => {
      const a = cutAnswer(this.got, this.closed);
      if (a) {
        this.got = this.got.subarray(a.bytes);
        return a;
      }
      return this.closed ? { status: 0, headers: {}, body: Buffer.alloc(0) } : null;
    }, what);
  }

  close() {
    this.socket.destroy();
  }
}

function cutAnswer(bytes, closed) {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [first, ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const m = /^HTTP\/1\.[01] (\d{3}) /.exec(first);
  assert.ok(m, `a status line: ${first}`);
  const headers = {};
  for (const l of lines) headers[l.slice(0, l.indexOf(":")).toLowerCase()] = l.slice(l.indexOf(":") + 1).trim();
  const status = Number(m[1]);
  if (status < 200) return { status, headers, body: Buffer.alloc(0), bytes: end + 4 };
  const rest = bytes.subarray(end + 4);
  if (headers["content-length"] !== undefined) {
    const n = Number(headers["content-length"]);
    return rest.length < n ? null : { status, headers, body: rest.subarray(0, n), bytes: end + 4 + n };
  }
  if ((headers["transfer-encoding"] || "") !== "chunked")
    return closed ? { status, headers, body: rest, bytes: bytes.length } : null;
  const parts = [];
  for (let at = 0; ;) {
    const eol = rest.indexOf("\r\n", at);
    if (eol < 0) return null;
    const n = parseInt(rest.subarray(at, eol).toString("latin1"), 16);
    if (rest.length < eol + 4 + n) return null;
    if (n === 0) return { status, headers, body: Buffer.concat(parts), bytes: end + 4 + eol + 4 };
    parts.push(rest.subarray(eol + 2, eol + 2 + n));
    at = eol + 4 + n;
  }
}

// A generator of numbers that are the same in every run (mulberry32): in [0, 1).
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
