// mock.mjs - a server with the page's files and invented answers, for states that a real one
// reaches with difficulty: a pool of 100,000 blocks, a key, an error in a stream.
//
//   node mock.mjs URL [PORT]     look at it in a browser; URL: a nibble that has the files
import http from "node:http";
import { pathToFileURL } from "node:url";

function random(seed) {
  let s = seed >>> 0;
  return () => ((s = (Math.imul(s, 1664525) + 1013904223) >>> 0) / 4294967296);
}

export function cacheAnswer(nBlock, seed = 1) {
  const rnd = random(seed);
  const state = new Array(nBlock).fill(".");
  const parent = new Array(nBlock).fill(-1);
  const holders = new Array(nBlock).fill(0);
  const hits = new Array(nBlock).fill(0);
  const keyed = new Array(nBlock).fill(true);
  const requests = [];
  let next = 0;
  const chain = (from, n, st, hit) => {
    const ids = [];
    for (let i = 0; i < n && next < nBlock * 0.8; i++) {
      const id = next++;
      state[id] = st;
      parent[id] = i === 0 ? from : ids[i - 1];
      hits[id] = hit;
      holders[id] = st === "h" ? 1 : 0;
      ids.push(id);
    }
    return ids;
  };
  const shared = chain(-1, Math.max(2, Math.floor(nBlock / 40)), "m", 9);
  for (let r = 1; r <= 4; r++) {
    const own = chain(shared.at(-1) ?? -1, 3 + Math.floor(rnd() * (nBlock / 60)), "h", 0);
    if (!own.length) break;
    keyed[own.at(-1)] = false;
    for (const id of shared) (state[id] = "h"), holders[id]++;
    requests.push({ id: r, prompt_tokens: 64 * (shared.length + own.length) - 70, tokens: 64 * (shared.length + own.length) - 20, computed: 64 * (shared.length + own.length) - 21, cached: 64 * shared.length, n_blocks: shared.length + own.length, runs: [...shared, ...own].flatMap((id) => [id, 1]) });
  }
  for (let guard = 0; next < nBlock * 0.7 && guard < 5000; guard++) {
    const many = rnd() < 0.4;
    const from = rnd() < 0.4 && next > 0 ? Math.floor(rnd() * next) : -1;
    if (from >= 0 && !keyed[from]) continue;
    chain(from, 1 + Math.floor((rnd() * nBlock) / 50), many ? "m" : "1", many ? 1 + Math.floor(rnd() * 20) : 0);
  }
  const used = state.map((c, i) => (c === "." ? -1 : i)).filter((i) => i >= 0);
  return {
    n_block: nBlock, block_tok: 64, block_bytes: 158592, kv_dtype: "nvfp4", state: state.join(""),
    parent: used.map((i) => (parent[i] < 0 || !keyed[i] ? 0 : parent[i] - i)),
    holders: used.map((i) => holders[i]), hits: used.map((i) => hits[i]),
    keys: used.map((i) => (keyed[i] ? ((Math.imul(i + 1, 2654435761) >>> 0) | 1).toString(16).replace("-", "").padStart(8, "0").slice(-8) : "00000000")).join(""),
    requests, requests_left_out: 0,
  };
}

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const nearest = (grid, x) => grid.reduce((best, v, i) => (Math.abs(v - Math.abs(x)) < Math.abs(grid[best] - Math.abs(x)) ? i : best), 0);

/** Looks like the real thing; the arithmetic is a rough one. */
export function blockAnswer(layer, tok, nTok = 41) {
  const n = 576;
  tok = Math.min(tok, nTok - 1);
  const rows = [];
  for (let t = 0; t < nTok; t++) {
    const rnd = random(977 * layer + t + 1);
    rows.push(Array.from({ length: n }, (_, i) => {
      const g = rnd() + rnd() + rnd() - 1.5;
      return Math.fround(g * (i % 37 === 5 ? 4 : 1) * (i < 512 ? 1 : 2.2));
    }));
  }
  const amax = Math.max(...rows.flat().map(Math.abs));
  const plane = (m) => Buffer.from(Int8Array.from(m.flat().map((v) => Math.round(127 * Math.sign(v) * Math.sqrt(Math.min(1, Math.abs(v) / amax))))).buffer).toString("base64");
  const fp8 = (v) => (v === 0 ? 0 : (() => { const e = 2 ** (Math.floor(Math.log2(Math.abs(v))) - 3); return Math.round(v / e) * e; })());
  const four = (row) => row.map((v, i) => {
    if (i >= 512) return fp8(v);
    const k = 16 * Math.floor(i / 16);
    const s = Math.max(...row.slice(k, k + 16).map(Math.abs)) / 6 || 1;
    return Math.sign(v) * E2M1[nearest(E2M1, v / s)] * s;
  });
  const rms = (a, b) => Math.sqrt(a.reduce((x, v, i) => x + (v - b[i]) ** 2, 0) / a.length);
  const record = (dtype, bytes, f, segments) => {
    const decoded = rows.map(f);
    return { dtype, bytes_per_token: bytes, page_bytes: bytes * 64, rmse_token: rms(decoded[tok], rows[tok]), rmse_page: rms(decoded.flat(), rows.flat()), max_error_token: Math.max(...decoded[tok].map((v, i) => Math.abs(v - rows[tok][i]))), decoded: decoded[tok], plane: plane(decoded), segments };
  };
  const row = rows[tok];
  const codes = (m, k) => row.slice(k === 0 ? 0 : 512, k === 0 ? 512 : 576).map((v) => Math.floor(Math.abs(v * 7919)) % m);
  const seg = (fmt, bits, k, group) => ({ fmt, code_bits: bits, codes: codes(2 ** bits, k), group, scales: group ? Array(32).fill(0.4375) : [], scale_bytes: group ? Array(32).fill(46) : [], outer: bits === 16 ? [] : [0.125], outer_bytes: bits === 16 ? [] : [124] });
  return {
    request: 7, running: true, layer, n_layer: 7, pos0: 128, n_tok: nTok, tok, n_values: n, plane_values: n,
    segments: [{ name: "latent", n_vec: 1, dim: 512 }, { name: "rope key", n_vec: 1, dim: 64 }],
    tokens: Array.from({ length: nTok }, (_, i) => ({ id: 100 + i, text: [" once", " upon", " a", " time", " the", " cat", "\n"][i % 7] })),
    amax, values: row,
    records: [
      record("bf16", 1152, (r) => r, [seg("bf16", 16, 0, 0), seg("bf16", 16, 1, 0)]),
      record("fp8", 578, (r) => r.map(fp8), [seg("e4m3", 8, 0, 0), seg("e4m3", 8, 1, 0)]),
      record("nvfp4", 354, four, [seg("nvfp4", 4, 0, 16), seg("e4m3", 8, 1, 0)]),
      record("if4", 354, four, [seg("if4", 4, 0, 16), seg("e4m3", 8, 1, 0)]),
    ],
  };
}

function config(nBlock) {
  const row = (name, label, note, b, served = false) => ({ name, label, note, bytes_per_token: b, served });
  return {
    name: "nibble-tiny", version: "0.1.0", has_text: true, has_template: true,
    sampling: { temperature: 0.6, top_p: 0.9, top_k: 0, min_p: 0 },
    engine: { family: "deepseek_v3", kv_dtype: "nvfp4", kv_layout: "codes 64x256", weights: "BF16", n_param: 15200000, n_layer: 7, max_model_len: 4096, max_num_seqs: 32, kv_bytes_per_tok: 2478, n_block: nBlock, block_tok: 64, block_bytes: 158592, kernels: "" },
    compare: [row("nvfp4", "NVFP4 latent", "4-bit codes, FP8 rope key", 2478, true), row("fp8", "FP8 latent", "", 4046), row("bf16", "BF16 latent", "MLA as it comes", 8064), row("gqa8", "GQA, 8 KV heads", "BF16 keys and values of 64", 14336), row("mha", "MHA, 8 heads", "BF16 keys and values of 64", 14336)],
  };
}

const WORDS = "Once there was a small boat. It lay on the sand, and it waited for the sea. \u201cCome,\u201d said the wind. <b>Bold</b> it was not, but it went. ".split(/(?<= )/);
const usageOf = (n) => ({ prompt_tokens: 30, completion_tokens: n, total_tokens: 30 + n, prompt_tokens_details: { cached_tokens: 12 } });
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

export function serve({ files, port = 0, nBlock = 2048, key = "", speed = 25 }) {
  // answer(body): pieces of an answer instead of the invented one: texts, or { reasoning_content }; fail: refuses the next request.
  const state = { answer: null, fail: null, running: 0, generated: 0, prompt: 0, cached: 0, t0: Date.now(), aborted: 0, requests: [], bodies: [], hasBlock: true };
  const stats = () => ({
    uptime_s: (Date.now() - state.t0) / 1000, running: state.running, waiting: state.running > 2 ? 1 : 0, deferred: 0, waiting_tokens: 0,
    blocks: { all: nBlock, free: Math.floor(nBlock * 0.3), held: Math.floor(nBlock * 0.1), once: Math.floor(nBlock * 0.3), many: Math.floor(nBlock * 0.3) },
    prefix_queries: state.prompt, prefix_hits: state.cached, evicted: 12, preempted: 1, prompt_tokens: state.prompt, prompt_tokens_cached: state.cached, generated_tokens: state.generated, steps: state.generated, step_s: 1, nonfinite: 0,
  });
  const made = new Map(); // answers that do not change; a large pool takes a second to invent
  const once = (key, make) => made.get(key) ?? made.set(key, JSON.stringify(make())).get(key);
  const server = http.createServer(async (req, res) => {
    const url = new URL(req.url, "http://x");
    const send = (status, text) => res.writeHead(status, { "Content-Type": "application/json" }).end(text);
    const json = (status, body) => send(status, JSON.stringify(body));
    state.requests.push(url.pathname);
    if (url.pathname.startsWith("/api/") || url.pathname.startsWith("/v1/")) {
      if (key && req.headers.authorization !== `Bearer ${key}`) return json(401, { error: { message: "the API key is missing or wrong", type: "invalid_request_error", param: null, code: 401 } });
    }
    if (url.pathname === "/api/config") return json(200, config(nBlock));
    if (url.pathname === "/api/stats") return json(200, stats());
    if (url.pathname === "/api/cache") return send(200, once("cache", () => cacheAnswer(nBlock)));
    if (url.pathname === "/api/block") {
      if (!state.hasBlock) return json(404, { error: { message: "nothing has run yet" } });
      return send(200, once(url.search, () => blockAnswer(Number(url.searchParams.get("layer")), Number(url.searchParams.get("tok")))));
    }
    if (url.pathname.startsWith("/v1/")) {
      let text = "";
      for await (const part of req) text += part;
      const body = JSON.parse(text);
      state.last = body;
      state.bodies.push(body);
      if (state.fail) {
        const { status, message, headers = {}, cut } = state.fail;
        state.fail = null;
        if (cut) return void res.writeHead(200, { "Content-Type": "text/event-stream" }).end(`data: ${JSON.stringify({ choices: [{ delta: { content: message } }] })}\n\n`);
        return void res.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify({ error: { message } }));
      }
      const chat = url.pathname.includes("chat");
      const pieces = state.answer?.(body) ?? Array.from({ length: Math.min(body.max_tokens ?? 60, 400) }, (_, i) => WORDS[i % WORDS.length]);
      const n = pieces.length;
      state.running++;
      state.hasBlock = true;
      state.prompt += 30;
      state.cached += 12;
      if (!body.stream) {
        state.running--;
        return json(200, { choices: [{ text: "x", finish_reason: "length" }], usage: {} });
      }
      let gone = false;
      res.on("close", () => (gone = !res.writableEnded));
      res.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
      const event = (o) => res.write(`data: ${JSON.stringify(o)}\n\n`);
      for (let i = 0; i < n && !gone; i++) {
        const w = pieces[i];
        const delta = typeof w === "string" ? { content: w } : w;
        event({ choices: [chat ? { index: 0, delta, finish_reason: null } : { index: 0, text: w, finish_reason: null }], usage: usageOf(i + 1) });
        state.generated++;
        if (!state.answer || i % 64 === 63) await sleep(speed);
      }
      state.running--;
      if (gone) {
        state.aborted++;
        return undefined;
      }
      event({ choices: [chat ? { index: 0, delta: {}, finish_reason: "length" } : { index: 0, text: "", finish_reason: "length" }] });
      event({ choices: [], usage: usageOf(n) });
      res.end("data: [DONE]\n\n");
      return undefined;
    }
    try {
      const r = await fetch(new URL(url.pathname, files));
      const body = Buffer.from(await r.arrayBuffer());
      const headers = Object.fromEntries(["content-type", "content-security-policy"].map((h) => [h, r.headers.get(h) ?? ""]));
      return res.writeHead(r.status, headers).end(body);
    } catch (e) { // the server with the files may be stopped while a page that is already closed still asks for one
      return json(502, { error: { message: String(e) } });
    }
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}/`, state, close: () => server.closeAllConnections() ?? server.close() })));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const s = await serve({ files: process.argv[2], port: Number(process.argv[3] ?? 0) });
  console.log(s.url);
}
