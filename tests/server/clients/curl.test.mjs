// curl.test.mjs - curl and wrk: streams, HTTP/1.0, HEAD, OPTIONS, 100-continue, chunked bodies, sockets.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Server, TMP, ask, events, hasProgram, start } from "./lib.mjs";

const here = path.dirname(new URL(import.meta.url).pathname);
const JSON_TYPE = ["-H", "Content-Type: application/json"];
const body = (more) => JSON.stringify({ prompt: "Once upon a time", max_tokens: 8, temperature: 0, ...more });

// { code, out, err }: curl must be able to talk to the server.
function curl(...args) {
  return new Promise((done) =>
    execFile("curl", ["-sS", "--max-time", "120", ...args], { maxBuffer: 1 << 26 },
      (error, out, err) => done({ code: error ? error.code : 0, out, err })));
}

// Status, headers and body of `curl -i`.
async function show(...args) {
  const { code, out, err } = await curl("-i", ...args);
  assert.equal(code, 0, err);
  let rest = out;
  while (/^HTTP\/1\.1 1\d\d /.test(rest)) rest = rest.slice(rest.indexOf("\r\n\r\n") + 4);
  const end = rest.indexOf("\r\n\r\n");
  const [first, ...lines] = rest.slice(0, end).split("\r\n");
  const headers = Object.fromEntries(lines.map((l) => [l.slice(0, l.indexOf(":")).toLowerCase(), l.slice(l.indexOf(":") + 2)]));
  return { first, status: Number(first.split(" ")[1]), headers, text: rest.slice(end + 4), all: out };
}

describe("curl", { skip: hasProgram("curl") ? false : "no curl" }, () => {
  let server, at, whole;

  before(async () => {
    server = await Server.start();
    at = (p) => server.url + p;
    whole = (await server.post("/v1/completions", body())).json;
  });
  after(() => server.stop());

  test("-N: a stream comes piece by piece", async () => {
    const c = start(["curl", "-sN", at("/v1/completions"), ...JSON_TYPE, "-d",
      body({ stream: true, max_tokens: 3000, ignore_eos: true })], { stdio: ["ignore", "pipe", "ignore"] });
    let text = "";
    c.stdout.on("data", (d) => (text += d));
    await server.until("five chunks", () => (text.match(/data: /g) ?? []).length >= 5);
    assert.equal(c.exitCode, null, "the stream is over already");
    await c.end("SIGKILL");
    await server.idle();
    const { out } = await curl("-N", at("/v1/completions"), ...JSON_TYPE, "-d", body({ stream: true }));
    const chunks = events(out);
    assert.equal(chunks.pop(), "[DONE]");
    assert.equal(chunks.map((x) => x.choices[0].text).join(""), whole.choices[0].text);
  });

  test("HTTP/1.0", async () => {
    const a = await show("-0", at("/v1/completions"), ...JSON_TYPE, "-d", body());
    assert.equal(a.status, 200);
    assert.equal(JSON.parse(a.text).choices[0].text, whole.choices[0].text);
    const s = await show("-0", at("/v1/completions"), ...JSON_TYPE, "-d", body({ stream: true }));
    assert.equal(s.headers["transfer-encoding"], undefined, "chunks are not known to HTTP/1.0");
    assert.equal(events(s.text).at(-1), "[DONE]");
  });

  test("HEAD", async () => {
    for (const where of ["/health", "/v1/models", "/metrics"]) {
      const a = await show("-I", at(where));
      assert.equal(a.status, 200);
      assert.equal(a.text, "");
    }
    const { headers } = await show("-I", at("/v1/models"));
    assert.equal(Number(headers["content-length"]), (await server.get("/v1/models")).text.length);
    assert.equal((await show("-I", at("/v1/completions"))).status, 405);
    assert.equal((await show("-I", at("/nothing"))).status, 404);
  });

  test("OPTIONS", async () => {
    const a = await show("-X", "OPTIONS", at("/v1/chat/completions"));
    assert.ok([200, 204].includes(a.status), a.first);
    assert.match(a.headers.allow ?? "", /POST/);
    assert.equal(a.headers["access-control-allow-origin"], undefined, "CORS is off by default");
    const open = await Server.start(["--allowed-origins", "https://chat.example"]);
    const preflight = (origin) => show("-X", "OPTIONS", `${open.url}/v1/chat/completions`, "-H", `Origin: ${origin}`,
      "-H", "Access-Control-Request-Method: POST", "-H", "Access-Control-Request-Headers: authorization,content-type");
    const b = await preflight("https://chat.example");
    assert.equal(b.headers["access-control-allow-origin"], "https://chat.example");
    assert.match(b.headers["access-control-allow-headers"], /authorization/i);
    assert.match(b.headers["access-control-allow-methods"], /POST/);
    assert.equal((await preflight("https://evil.example")).headers["access-control-allow-origin"], undefined);
    await open.stop();
  });

  test("Expect: 100-continue with a big body", async () => {
    const file = path.join(TMP, "big.json");
    fs.writeFileSync(file, JSON.stringify({ prompt: "fox ".repeat(500000) }));
    const a = await show(at("/tokenize"), ...JSON_TYPE, "-H", "Expect: 100-continue", "--data-binary", `@${file}`);
    assert.match(a.all, /^HTTP\/1\.1 100 /);
    assert.equal(a.status, 200);
    assert.ok(JSON.parse(a.text).count > 500000);
    fs.writeFileSync(file, Buffer.alloc(20 << 20, 32));
    const b = await show(at("/tokenize"), ...JSON_TYPE, "-H", "Expect: 100-continue", "--data-binary", `@${file}`);
    assert.equal(b.status, 413);
    assert.doesNotMatch(b.all, /^HTTP\/1\.1 100 /, "asked for a body that it does not want");
    const c = await curl("-i", at("/tokenize"), ...JSON_TYPE, "-H", "Expect:", "--data-binary", `@${file}`);
    assert.match(c.out, /^HTTP\/1\.1 413 /, `the answer to a body that is too large got lost: ${c.err}`);
    const d = await show(at("/tokenize"), ...JSON_TYPE, "-H", "Expect: tea", "-d", "{}");
    assert.equal(d.status, 417);
    fs.unlinkSync(file);
  });

  test("a chunked request body", async () => {
    const a = await show(at("/v1/completions"), ...JSON_TYPE, "-H", "Transfer-Encoding: chunked", "-d", body());
    assert.equal(a.status, 200);
    assert.equal(JSON.parse(a.text).choices[0].text, whole.choices[0].text);
    const file = path.join(TMP, "big.json");
    fs.writeFileSync(file, JSON.stringify({ prompt: "fox ".repeat(100000) }));
    const b = await show(at("/tokenize"), ...JSON_TYPE, "-H", "Transfer-Encoding: chunked", "-T", file, "-X", "POST");
    assert.equal(b.status, 200);
    assert.ok(JSON.parse(b.text).count > 100000);
    fs.unlinkSync(file);
  });

  test("one connection for several requests", async () => {
    const one = ["-o", "/dev/null", "-w", "%{num_connects} ", at("/v1/completions"), ...JSON_TYPE];
    const { out } = await curl(...one, "-d", body(), "--next", ...one, "-d", body({ stream: true }),
      "--next", ...one, "-d", "{", "--next", ...one, "-d", body());
    assert.equal(out.trim(), "1 0 0 0");
  });

  test("a Unix socket", async () => {
    const where = path.join(TMP, `s${process.pid}`);
    const uds = await Server.start([], { port: ["--uds", where] });
    const a = await show("--unix-socket", where, "http://localhost/v1/completions", ...JSON_TYPE, "-d", body());
    assert.equal(JSON.parse(a.text).choices[0].text, whole.choices[0].text);
    uds.socketPath = where;
    assert.equal((await ask(uds, "GET", "/health", undefined, { Connection: "close" })).status, 200);
    await uds.stop();
    assert.ok(!fs.existsSync(where), "the socket is left behind");
  });

  test("a full URL, a query, an encoded path", async () => {
    assert.equal((await show("--proxy", server.url, "http://localhost/v1/models")).status, 200);
    assert.equal((await show(at("/v1/models?limit=20"))).status, 200);
    assert.equal((await show(at("/v1/%6dodels"))).status, 200);
    assert.equal((await show("--path-as-is", at("/v1/../v1/models"))).status, 404);
  });
});

describe("wrk", { skip: hasProgram("wrk") ? false : "no wrk" }, () => {
  const run = (...args) => new Promise((done, failed) =>
    execFile("wrk", args, { encoding: "utf8" }, (e, out) => (e ? failed(e) : done(out))));

  test("no errors", async () => {
    const server = await Server.start(["--max-num-seqs", "32"]);
    const health = await run("-t1", "-c50", "-d2s", "--timeout", "60s", `${server.url}/health`);
    assert.doesNotMatch(health, /Non-2xx|Socket errors/, health);
    console.log(`wrk /health: ${/Requests\/sec: *(.*)/.exec(health)[1]} requests/s`);
    let text;
    for (const seconds of [3, 15, 60]) { // a build with sanitizers may not finish one in 3 s
      text = await run("-t1", "-c16", `-d${seconds}s`, "--timeout", "60s", "-s", path.join(here, "wrk.lua"), server.url);
      assert.doesNotMatch(text, /Non-2xx|Socket errors/, text);
      if (!/ 0 requests in/.test(text)) break;
    }
    assert.match(text, /[1-9]\d* requests in/);
    console.log(`wrk /v1/completions: ${/Requests\/sec: *(.*)/.exec(text)[1]} requests/s of 4 tokens`);
    await server.idle();
    await server.stop();
  });
});
