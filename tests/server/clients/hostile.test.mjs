// hostile.test.mjs - bytes that no client should send, over plain sockets, with good ones in between.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { NAME, Raw, Server, random, sleep } from "./lib.mjs";

const CHAT = "/v1/chat/completions", TEXT = "/v1/completions", MESSAGES = "/v1/messages";
const say = [{ role: "user", content: "Hello" }];
const BASE = {
  [CHAT]: { model: NAME, messages: say, max_tokens: 1, temperature: 0 },
  [TEXT]: { model: NAME, prompt: "Hello", max_tokens: 1, temperature: 0 },
  [MESSAGES]: { model: NAME, messages: say, max_tokens: 1, temperature: 0 },
  "/v1/messages/count_tokens": { model: NAME, messages: say },
  "/tokenize": { model: NAME, prompt: "Hello" },
  "/detokenize": { model: NAME, tokens: [400, 401] },
  "/v1/chat/completions/render": { model: NAME, messages: say },
  "/v1/completions/render": { model: NAME, prompt: "Hello" },
};

const bytesOf = (where, body, headers = "") => {
  const b = Buffer.isBuffer(body) ? body : Buffer.from(body);
  return Buffer.concat([Buffer.from(`POST ${where} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
    `${headers}Content-Length: ${b.length}\r\n\r\n`), b]);
};

// An error object of either of the two APIs; its field, if it names one.
function errorOf(a, where, what) {
  let doc;
  try {
    doc = JSON.parse(a.body.toString());
  } catch {
    assert.fail(`${what}: ${a.status} without an error object: ${a.body.toString().slice(0, 200)}`);
  }
  assert.equal(typeof doc.error?.message, "string", what);
  assert.ok(doc.error.message.length > 0 && doc.error.message.length < 2000, what);
  if (where.startsWith(MESSAGES)) return doc.error.message;
  assert.equal(doc.error.code, a.status, what);
  return doc.error.param;
}

describe("hostile", () => {
  let server, hasty, good; // hasty: for what never arrives whole
  const GOOD = bytesOf(TEXT, JSON.stringify({ prompt: "Once upon a", max_tokens: 6, temperature: 0, logprobs: 2 }));

  before(async () => {
    server = await Server.start(["--max-connections", "1100", "--max-num-seqs", "16"]);
    hasty = await Server.start(["--read-timeout", "2"]);
    good = await goodAnswer(server);
  });
  after(async () => {
    await server.stop();
    await hasty.stop();
  });

  async function send(bytes, what, to = server) {
    const r = await Raw.open(to);
    r.send(bytes);
    const a = await r.answer(what);
    r.close();
    return a;
  }

  async function goodAnswer(to) {
    const a = await send(GOOD, "a good request", to);
    assert.equal(a.status, 200);
    return JSON.stringify(JSON.parse(a.body.toString()).choices);
  }

  const stillGood = async (to = server) => assert.equal(await goodAnswer(to), good);

  async function inParallel(n, list, fn) {
    const it = list.values();
    await Promise.all(Array.from({ length: n }, async () => {
      for (const x of it) await fn(x);
    }));
  }

  // ---- every field with every type -------------------------------------------------------

  // What each field must be; every other type has to be refused by name.  "any": ignored.
  const SAMPLING = { temperature: "number", top_p: "number", top_k: "integer", min_p: "number",
    repetition_penalty: "number", presence_penalty: "number", frequency_penalty: "number", seed: "integer",
    n: "integer", stop: "string array", stop_token_ids: "array", include_stop_str_in_output: "boolean",
    ignore_eos: "boolean", min_tokens: "integer", max_tokens: "integer", logit_bias: "object",
    truncate_prompt_tokens: "integer", prompt_logprobs: "integer", return_tokens_as_token_ids: "boolean",
    stream: "boolean", stream_options: "object", cache_salt: "string", request_id: "string", priority: "integer",
    return_token_ids: "boolean", add_special_tokens: "boolean", model: "string", response_format: "object",
    user: "any", metadata: "any", store: "any", service_tier: "any", safety_identifier: "any", reasoning_effort: "any",
    use_beam_search: "boolean", skip_special_tokens: "boolean", allowed_token_ids: "refused", bad_words: "refused",
    structured_outputs: "refused", kv_transfer_params: "refused", nonsense_of_a_new_sdk: "any" };
  const FIELDS = {
    [CHAT]: { ...SAMPLING, messages: "array", logprobs: "boolean", top_logprobs: "integer",
      max_completion_tokens: "integer", tools: "array", tool_choice: "string", reasoning_effort: "string", add_generation_prompt: "boolean",
      continue_final_message: "boolean", chat_template: "refused", chat_template_kwargs: "object", echo: "boolean",
      modalities: "array", parallel_tool_calls: "boolean", prediction: "any", audio: "refused", documents: "array" },
    [TEXT]: { ...SAMPLING, prompt: "string array", echo: "boolean", logprobs: "integer boolean", best_of: "integer",
      suffix: "refused", prompt_embeds: "refused" },
    [MESSAGES]: { model: "string", messages: "array", max_tokens: "integer", system: "string array", stream: "boolean",
      temperature: "number", top_p: "number", top_k: "integer", stop_sequences: "string array", tools: "array",
      tool_choice: "object", metadata: "any", thinking: "object", output_config: "object", service_tier: "any", container: "any" },
    "/v1/messages/count_tokens": { model: "string", messages: "array", system: "string array", tools: "array" },
    "/tokenize": { model: "string", prompt: "string", add_special_tokens: "boolean", return_token_strs: "boolean" },
    "/detokenize": { model: "string", tokens: "array" },
    "/v1/chat/completions/render": { messages: "array", model: "string", temperature: "number" },
    "/v1/completions/render": { prompt: "string array", model: "string", max_tokens: "integer" },
  };
  const VALUES = ["true", "false", "0", "1", "-1", "5", "1.5", "-0.0", "1e308", "123456789012345678", "9223372036854775807",
    '""', '"x"', '"5"', '"\\u0000"', '"\\ud83d\\ude00"', "[]", "[1]", "[-1]", "[1e30]", "[null]", '["x"]', '[""]', "[[]]", "[{}]",
    "{}", '{"x":1}', '{"1":"x"}', '{"type":5}', '{"role":"user"}', '[{"role":5,"content":5}]', '[{"role":"user","content":[5]}]',
    '[{"role":"user","content":{"a":1}}]', "[[[[[[]]]]]]"];
  const kindOf = (v) => {
    const x = JSON.parse(v);
    if (Array.isArray(x)) return "array";
    if (typeof x === "number") return Number.isInteger(x) && !/e/.test(v) ? "integer" : "number";
    return typeof x;
  };
  const fits = (want, kind) => want === "any" || want.split(" ").includes(kind) || (want === "number" && kind === "integer");

  // What is wrong with the answer to a request whose `field`, which must be a `want`, is v; "" nothing.
  function complaint(where, field, want, v, a) {
    const required = v === "null" &&
      (["messages", "prompt", "tokens"].includes(field) || (field === "max_tokens" && where === MESSAGES));
    if (a.status === 200) {
      if (required) return "must be there";
      const whole = kindOf(v) === "number" && Number.isInteger(JSON.parse(v)) && fits(want, "integer");
      return v === "null" || want === "refused" || whole || fits(want, kindOf(v)) ? "" : "accepted";
    }
    if (a.status !== 400 && !(a.status === 404 && field === "model")) return "status";
    if (v === "null" && !required) return "null is absent";
    if (want === "any") return "must be ignored";
    const about = errorOf(a, where, `${where} ${field}: ${v}`);
    if (where.startsWith(MESSAGES))
      return a.status === 404 || about.includes(field) || /maximum context/.test(about) ? "" : "not named";
    const names = { max_completion_tokens: "max_tokens", min_tokens: "max_tokens" };
    return about === field || about === names[field] ? "" : `names ${about}`;
  }

  for (const [where, fields] of Object.entries(FIELDS))
    test(`types of the fields of ${where}`, async () => {
      const cases = Object.keys(fields).flatMap((f) => [...VALUES, "null"].map((v) => [f, v]));
      const seen = {};
      const found = [];
      await inParallel(16, cases, async ([field, v]) => {
        const body = `${JSON.stringify({ ...BASE[where], [field]: undefined }).slice(0, -1)},${JSON.stringify(field)}:${v}}`;
        const a = await send(bytesOf(where, body), `${where} ${field}: ${v}`);
        seen[a.status] = (seen[a.status] ?? 0) + 1;
        const why = complaint(where, field, fields[field], v, a);
        if (why) found.push(`${field}: ${v}: ${why}: ${a.status} ${a.body.toString().slice(0, 300)}`);
      });
      assert.deepEqual(found.slice(0, 10), []);
      assert.ok(seen[400] > 10 || where.includes("oken"), JSON.stringify(seen));
      await stillGood();
    });

  // ---- JSON ----------------------------------------------------------------------------

  const MB10 = 10 << 20;
  const STRANGE = [
    ["no body", "", 400], ["blanks", "   ", 400], ["a number", "5", 400], ["a string", '"x"', 400], ["null", "null", 400],
    ["an array", "[]", 400], ["an open object", '{"prompt":"x"', 400], ["something after the end", '{"prompt":"x"}}', 400],
    ["a key twice", '{"prompt":"x","prompt":"y"}', 400], ["single quotes", "{'prompt':'x'}", 400],
    ["NaN", '{"prompt":"x","temperature":NaN}', 400], ["Infinity", '{"prompt":"x","temperature":Infinity}', 400],
    ["1e999", '{"prompt":"x","temperature":1e999}', 400], ["a number of 100,000 digits", `{"prompt":"x","seed":${"9".repeat(100000)}}`, 400],
    ["deep arrays", `{"prompt":${"[".repeat(200000)}`, 400], ["deep closed arrays", `{"prompt":${"[".repeat(100000)}${"]".repeat(100000)}}`, 400],
    ["deep objects", `${'{"a":'.repeat(200000)}1${"}".repeat(200000)}`, 400],
    ["a deep unknown field", `{"prompt":"x","max_tokens":1,"more":${"[".repeat(1000)}${"]".repeat(1000)}}`, [200, 400]],
    ["bytes that are not UTF-8", Buffer.from([...Buffer.from('{"prompt":"'), 0xff, 0xfe, ...Buffer.from('"}')]), 400],
    ["an overlong form", Buffer.from([...Buffer.from('{"prompt":"'), 0xc0, 0x80, ...Buffer.from('"}')]), 400],
    ["a surrogate as UTF-8", Buffer.from([...Buffer.from('{"prompt":"'), 0xed, 0xa0, 0x80, ...Buffer.from('"}')]), 400],
    ["half a character", Buffer.from([...Buffer.from('{"prompt":"'), 0xe2, 0x82, ...Buffer.from('"}')]), 400],
    ["a high surrogate alone", '{"prompt":"\\ud800","max_tokens":1}', 400], ["a low surrogate alone", '{"prompt":"\\udc00","max_tokens":1}', 400],
    ["surrogates in a key", '{"prompt":"x","\\ud800":1}', 400], ["a zero byte", Buffer.from('{"prompt":"a\0b"}'), 400],
    ["\\u0000 in a prompt", '{"prompt":"a\\u0000b","max_tokens":1}', 200], ["\\u0000 in a key", '{"prompt":"x","a\\u0000b":1,"max_tokens":1}', [200, 400]],
    ["a byte order mark", '\ufeff{"prompt":"x","max_tokens":1}', 400], ["UTF-16", Buffer.from('{"prompt":"x"}', "utf16le"), 400],
    ["10 MB of prompt", `{"prompt":"${"a".repeat(MB10)}"}`, 400], ["10 MB of stop", `{"prompt":"x","stop":"${"a".repeat(MB10)}"}`, 400],
    ["10 MB of a name", `{"prompt":"x","model":"${"m".repeat(MB10)}"}`, 404], ["1 MB of salt", `{"prompt":"x","cache_salt":"${"s".repeat(MB10 / 10)}"}`, 400],
    ["10 MB that is ignored", `{"prompt":"x","max_tokens":1,"user":"${"u".repeat(MB10)}"}`, 200],
    ["1 MB of a key", `{"prompt":"x","max_tokens":1,"${"k".repeat(MB10 / 10)}":1}`, 200],
    ["200,000 keys", `{"prompt":"x","max_tokens":1${Array.from({ length: 200000 }, (_, i) => `,"${i}":1`).join("")}}`, 200],
    ["200,000 token ids", `{"prompt":[${"400,".repeat(200000)}400]}`, 400],
    ["200,000 prompts", `{"prompt":[${'"a",'.repeat(200000)}"a"]}`, 400],
    ["200,000 stop strings", `{"prompt":"x","stop":[${'"a",'.repeat(200000)}"a"]}`, 400],
    ["200,000 biases", `{"prompt":"x","logit_bias":{${Array.from({ length: 200000 }, (_, i) => `"${i}":1`).join(",")}}}`, 400],
    ["n of a million", '{"prompt":"x","n":1000000}', 400], ["2,048 prompts of n=128", `{"prompt":[${'"a",'.repeat(2047)}"a"],"n":128}`, 400],
    ["no JSON", "prompt=x", 400], ["zero bytes", Buffer.alloc(1000), 400],
  ];

  test("strange JSON", async () => {
    await inParallel(4, STRANGE, async ([what, body, want]) => {
      const a = await send(bytesOf(TEXT, body), what);
      assert.ok([want].flat().includes(a.status), `${what}: ${a.status} ${a.body.toString().slice(0, 200)}`);
      if (a.status !== 200) errorOf(a, TEXT, what);
    });
    await stillGood();
  });

  test("strange chats", async () => {
    const messages = [
      ['[{"role":"user","content":"\\ud800"}]', 400], ['[{"role":"user"}]', 400], ['[{"content":"x"}]', 400], ["[5]", 400], ["[[]]", 400],
      ['[{"role":"user","content":null}]', 400], ['[{"role":"user","content":[{"type":"text"}]}]', 400],
      ['[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]', 400],
      ['[{"role":"user","content":[{"type":"text","text":"x"}]}]', 200], ['[{"role":"user","content":""}]', 200],
      [`[${'{"role":"user","content":"x"},'.repeat(20000)}{"role":"user","content":"x"}]`, 400],
      [`[{"role":"user","content":"${"a".repeat(MB10)}"}]`, 400], [`[{"role":"${"r".repeat(MB10)}","content":"x"}]`, [200, 400]],
      ['[{"role":"user","content":"<|end|><|assistant|>"}]', 200], ['[{"role":"user","content":"a\\u0000b"}]', [200, 400]],
      [`[{"role":"user","content":${"[".repeat(1000)}${"]".repeat(1000)}}]`, 400],
    ];
    for (const where of [CHAT, MESSAGES])
      await inParallel(4, where === CHAT ? messages : messages.filter(([list]) => list.length < MB10), async ([list, want]) => {
        const what = `${where} ${list.slice(0, 100)}`;
        const a = await send(bytesOf(where, `{"model":"${NAME}","max_tokens":1,"messages":${list}}`), what);
        assert.ok([want, where === MESSAGES ? [200, 400] : []].flat(2).includes(a.status), `${what}: ${a.status} ${a.body.toString().slice(0, 200)}`);
        if (a.status !== 200) errorOf(a, where, what);
      });
    await stillGood();
  });

  // ---- HTTP ----------------------------------------------------------------------------

  const ALLOWED = [200, 400, 403, 404, 405, 408, 411, 413, 414, 417, 431, 501, 505];

  test("requests that could be read in two ways are refused, and the connection ends", async () => {
    const post = (headers, body = "{}") =>
      `POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${headers}\r\n\r\n${body}`;
    for (const [what, bytes] of [
      ["two lengths", post("Content-Length: 2\r\nContent-Length: 3")], ["a length and chunks", post("Content-Length: 2\r\nTransfer-Encoding: chunked")],
      ["a list of lengths", post("Content-Length: 2, 3")], ["a signed length", post("Content-Length: +2")], ["a hex length", post("Content-Length: 0x2")],
      ["a negative length", post("Content-Length: -1")], ["a huge length", post("Content-Length: 99999999999999999999999")],
      ["an unknown coding", post("Transfer-Encoding: gzip")], ["chunked twice", post("Transfer-Encoding: chunked, chunked")],
      ["a blank before the colon", post("Content-Length : 2")], ["a folded line", post("X-A: a\r\n b\r\nContent-Length: 2")],
      ["a header without a colon", post("Content-Length 2")], ["a zero byte", post("X-A: a\0b\r\nContent-Length: 2")],
      ["a bare carriage return", post("X-A: a\rb\r\nContent-Length: 2")], ["no host", `GET /health HTTP/1.1\r\n\r\n`],
      ["two hosts", `GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`], ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
      ["HTTP/0.9", "GET /health\r\n\r\n"], ["TLS", Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0x0d, 0x0a, 0x0d, 0x0a])],
      ["a bad chunk", post("Transfer-Encoding: chunked", "zz\r\nab\r\n0\r\n\r\n")], ["a chunk of 2^64", post("Transfer-Encoding: chunked", "ffffffffffffffff1\r\n")],
      ["a chunk without its end", post("Transfer-Encoding: chunked", "2\r\n{}XX0\r\n\r\n")],
      ["200 headers", `GET /health HTTP/1.1\r\nHost: a\r\n${"X: y\r\n".repeat(200)}\r\n`], ["a long line", `GET /${"a".repeat(100000)} HTTP/1.1\r\n\r\n`],
    ]) {
      const r = await Raw.open(server);
      r.send(bytes);
      const a = await r.answer(what);
      assert.ok(a.status >= 400 || a.status === 0, `${what}: ${a.status}`);
      assert.ok(ALLOWED.includes(a.status) || a.status === 0, `${what}: ${a.status}`);
      await r.until(() => r.closed, `${what}: the connection stays open`);
      r.close();
    }
    await stillGood();
  });

  test("fifty requests in one go are answered in their order", async () => {
    const r = await Raw.open(server);
    const all = Array.from({ length: 50 }, (_, i) => bytesOf("/detokenize", JSON.stringify({ tokens: [400 + i] })));
    r.send(Buffer.concat(all));
    const texts = [];
    for (let i = 0; i < 50; i++) texts.push((await r.answer("a pipeline")).body.toString());
    r.close();
    for (let i = 0; i < 50; i++)
      assert.equal(texts[i], (await server.post("/detokenize", { tokens: [400 + i] })).text);
  });

  test("300 mutated requests", async () => {
    const rng = random(20), pick = (n) => Math.floor(rng() * n), seen = {};
    const seeds = [...Object.entries(BASE).map(([w, b]) => bytesOf(w, JSON.stringify(b))),
      bytesOf(CHAT, JSON.stringify({ ...BASE[CHAT], stream: true, stream_options: { include_usage: true }, logprobs: true, top_logprobs: 3,
        stop: ["x"], logit_bias: { 400: 5 }, n: 2, seed: 3 })),
      bytesOf(TEXT, JSON.stringify({ ...BASE[TEXT], echo: true, logprobs: 2, prompt: [[400, 401], [402]], stream: true })),
      Buffer.from(`POST ${TEXT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n` +
        `1a\r\n{"prompt":"x","max_tokens"\r\n3\r\n:1}\r\n0\r\n\r\n`),
      Buffer.from("GET /v1/models HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"), Buffer.from("HEAD /health HTTP/1.0\r\n\r\n")];
    const TOKENS = ["\0", "\r\n", "\r\n\r\n", '"', "{", "[", "]}", "\\ud800", "\\u0000", "1e999", "-", ",", "\xff", "0".repeat(50), "%00", "../", "null", "true"];
    const mutate = (bytes) => {
      let b = bytes;
      for (let k = 1 + pick(3); k > 0; k--) {
        const at = pick(b.length), to = Math.min(b.length, at + 1 + pick(20));
        const cut = [() => [b.subarray(0, at), Buffer.from([pick(256)]), b.subarray(at + 1)],
          () => [b.subarray(0, at), b.subarray(to)], () => [b.subarray(0, to), b.subarray(at)],
          () => [b.subarray(0, at), Buffer.from(TOKENS[pick(TOKENS.length)], "latin1"), b.subarray(at)],
          () => [b.subarray(0, at + 1)],
          () => [b.subarray(0, at), Buffer.from(Array.from({ length: 8 }, () => pick(256))), b.subarray(at)]];
        b = Buffer.concat(cut[pick(cut.length)]());
      }
      return b;
    };
    // Two of three times only the body, with a length that is right.
    const one = () => {
      const b = seeds[pick(seeds.length)], head = b.indexOf("\r\n\r\n");
      const where = /^POST (\S+)/.exec(b.toString("latin1"));
      return pick(3) > 0 && where ? bytesOf(where[1], mutate(b.subarray(head + 4))) : mutate(b);
    };
    const list = Array.from({ length: 300 }, (_, i) => [i, Buffer.concat([one(), Buffer.from("\r")])]);
    await inParallel(24, list, async ([i, bytes]) => {
      if (i % 10 === 0) await stillGood(hasty);
      const r = await Raw.open(hasty);
      r.send(bytes);
      const a = await r.answer(`request ${i}: ${JSON.stringify(bytes.toString("latin1"))}`);
      seen[a.status] = (seen[a.status] ?? 0) + 1;
      assert.ok(a.status === 0 || ALLOWED.includes(a.status), `request ${i}: ${a.status} ${a.body} for ${JSON.stringify(bytes.toString("latin1"))}`);
      r.close();
    });
    assert.ok(seen[200] > 10 && seen[400] > 50, JSON.stringify(seen));
    console.log(`mutated requests: ${JSON.stringify(seen)}`);
    await hasty.idle();
    await stillGood(hasty);
  });

  test("random bytes", async () => {
    const rng = random(21);
    await inParallel(16, Array.from({ length: 64 }, (_, i) => i), async (i) => {
      const r = await Raw.open(hasty);
      r.send(Buffer.from(Array.from({ length: 1 + Math.floor(rng() * 3000) }, () => Math.floor(rng() * 256))));
      const a = await r.answer(`random ${i}`);
      assert.ok(a.status === 0 || ALLOWED.includes(a.status), `random ${i}: ${a.status}`);
      r.close();
    });
    await stillGood(hasty);
  });

  // ---- connections ------------------------------------------------------------------------

  test("1,000 connections that send nothing", async () => {
    const all = [];
    for (let i = 0; i < 10; i++) all.push(...await Promise.all(Array.from({ length: 100 }, () => Raw.open(server))));
    await server.until("a thousand", (m) => m("nibble:http_connections") >= 1000);
    assert.ok(all.every((r) => !r.closed));
    await Promise.all([1, 2, 3].map(() => stillGood()));
    all.forEach((r) => r.close());
    await server.until("they are gone", (m) => m("nibble:http_connections") < 50);
  });

  test("more connections than allowed are told so", async () => {
    const small = await Server.start(["--max-connections", "4"]);
    const held = await Promise.all([1, 2, 3, 4].map(() => Raw.open(small)));
    await sleep(100);
    const r = await Raw.open(small);
    r.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    const a = await r.answer("one too many");
    assert.ok([0, 503].includes(a.status), `${a.status}`);
    r.close();
    held.forEach((h) => h.close());
    await small.until("room again", (m) => m("nibble:http_connections") <= 2);
    await small.stop();
  });

  test("headers and bodies that drip are cut off, others are served", async () => {
    const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    const drips = [...Array(40).fill(`${head}X-A: ${"a".repeat(5000)}`), ...Array(10).fill(`${head}Content-Length: 5000\r\n\r\n${" ".repeat(5000)}`)];
    const all = await Promise.all(drips.map(async (text) => ({ r: await Raw.open(hasty), text, at: 0 })));
    let dripping = true;
    const drip = (async () => {
      while (dripping) {
        for (const d of all) {
          const n = d.text.startsWith(`${head}Content`) && d.at === 0 ? d.text.indexOf("\r\n\r\n") + 5 : 1;
          d.r.send(d.text.slice(d.at, (d.at += n)));
        }
        await sleep(50);
      }
    })();
    await stillGood(hasty);
    for (const d of all) {
      const a = await d.r.answer("a dripping client");
      assert.ok([0, 408].includes(a.status), `${a.status}`);
      await d.r.until(() => d.r.closed, "a dripping client keeps its connection");
    }
    dripping = false;
    await drip;
    await stillGood(hasty);
  });

  test("nothing is left", async () => {
    for (const s of [server, hasty]) {
      await s.idle();
      assert.equal((await s.get("/health")).status, 200);
    }
  });
});
