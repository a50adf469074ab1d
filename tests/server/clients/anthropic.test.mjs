// anthropic.test.mjs - the official `@anthropic-ai/sdk` package.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { NAME, Server } from "./lib.mjs";

const ask = [{ role: "user", content: "Tell me a story." }];
const RULES = "You are a kind story teller who likes animals, the sea and long walks in the forest. ".repeat(12);

describe("anthropic", () => {
  let server, client;
  const create = (more, o) => client.messages.create({ model: NAME, max_tokens: 12, temperature: 0, messages: ask, ...more }, o);

  before(async () => {
    server = await Server.start(["--api-key", "key"]);
    client = new Anthropic({ baseURL: server.url, apiKey: "key", maxRetries: 0 });
  });
  after(() => server.stop());

  test("whole answers", async () => {
    const a = await create();
    assert.match(a.id, /^msg_/);
    assert.deepEqual([a.type, a.role, a.model, a.stop_reason, a.stop_sequence],
      ["message", "assistant", NAME, "max_tokens", null]);
    assert.equal(a.content.length, 1);
    assert.equal(a.content[0].type, "text");
    assert.ok(a.content[0].text.length > 10);
    assert.equal(a.usage.output_tokens, 12);
    assert.ok(a.usage.input_tokens > 0);
    const blocks = await create({ messages: [{ role: "user", content: [{ type: "text", text: "Tell me a story." }] }] });
    assert.deepEqual(blocks.content, a.content);
  });

  test("a stream: the order of its events, and the same text", async () => {
    const whole = await create();
    const kinds = [];
    let text = "", usage;
    for await (const e of await create({ stream: true })) {
      if (e.type !== kinds.at(-1)) kinds.push(e.type);
      if (e.type === "message_start") {
        assert.deepEqual(e.message.content, []);
        assert.equal(e.message.stop_reason, null);
        assert.ok(e.message.usage.input_tokens > 0);
      }
      if (e.type === "content_block_delta") {
        assert.deepEqual([e.index, e.delta.type], [0, "text_delta"]);
        text += e.delta.text;
      }
      if (e.type === "message_delta") {
        assert.deepEqual(e.delta, { stop_reason: "max_tokens", stop_sequence: null });
        usage = e.usage;
      }
    }
    assert.deepEqual(kinds.filter((k) => k !== "ping"), ["message_start", "content_block_start",
      "content_block_delta", "content_block_stop", "message_delta", "message_stop"]);
    assert.equal(text, whole.content[0].text);
    assert.equal(usage.output_tokens, 12);
  });

  test("the helper that puts a stream together", async () => {
    let told = "";
    const stream = client.messages.stream({ model: NAME, max_tokens: 12, temperature: 0, messages: ask })
      .on("text", (t) => (told += t));
    const final = await stream.finalMessage();
    assert.equal(final.content[0].text, told);
    assert.equal(final.stop_reason, "max_tokens");
    assert.equal(final.usage.output_tokens, 12);
    assert.deepEqual(final.content, (await create()).content);
  });

  test("stop_sequences", async () => {
    const whole = (await create({ max_tokens: 60 })).content[0].text;
    const word = whole.split(" ")[6];
    const a = await create({ max_tokens: 60, stop_sequences: ["never there", word] });
    assert.deepEqual([a.stop_reason, a.stop_sequence], ["stop_sequence", word]);
    assert.equal(a.content[0].text, whole.slice(0, whole.indexOf(word)));
    const s = await client.messages.stream({ model: NAME, max_tokens: 60, temperature: 0, messages: ask,
      stop_sequences: ["never there", word] }).finalMessage();
    assert.deepEqual([s.stop_reason, s.stop_sequence, s.content[0].text], [a.stop_reason, word, a.content[0].text]);
  });

  test("the model's own end", async () => {
    const a = await create({ max_tokens: 2000, temperature: 1, messages: [{ role: "user", content: "Hello" }] });
    assert.ok(["end_turn", "max_tokens"].includes(a.stop_reason));
    assert.equal(a.stop_reason === "end_turn", a.usage.output_tokens < 2000);
  });

  test("count_tokens agrees with usage", async () => {
    const long = [...ask, { role: "assistant", content: "A fox." }, { role: "user", content: "Go on." }];
    for (const more of [{}, { system: "You are kind." }, { messages: long },
      { system: [{ type: "text", text: "Be brief." }, { type: "text", text: "Be kind." }] }]) {
      const n = await client.messages.countTokens({ model: NAME, messages: ask, ...more });
      const { usage } = await create({ max_tokens: 1, ...more });
      assert.equal(n.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
    }
  });

  test("a billing line of its own in each request leaves the prefix in the cache", async () => {
    const system = (n) => [
      { type: "text", text: `x-anthropic-billing-header: cc_version=2.0.${n}; cch=${n * 7919};` },
      { type: "text", text: RULES, cache_control: { type: "ephemeral" } }];
    const first = await create({ system: system(1) });
    const second = await create({ system: system(2) });
    const total = first.usage.input_tokens + first.usage.cache_read_input_tokens;
    assert.equal(first.usage.cache_read_input_tokens, 0);
    assert.ok(second.usage.cache_read_input_tokens >= total - 64 - 1,
      `${second.usage.cache_read_input_tokens} of ${total} tokens came from the cache`);
    assert.equal(second.usage.input_tokens + second.usage.cache_read_input_tokens, total);
    assert.deepEqual(second.content, first.content);
    // The same line inside of a text, at its beginning.
    const inside = await create({ system: `x-anthropic-billing-header: cch=9;\n${RULES}` });
    assert.ok(inside.usage.cache_read_input_tokens > 0);
    // Other lines count.
    const other = await create({ system: `x-other: cch=9;\n${RULES}` });
    assert.equal(other.usage.cache_read_input_tokens, 0);
  });

  test("a stream tells what came from the cache", async () => {
    const ask = { system: RULES, stream: true };
    await create({ system: RULES });
    const seen = [];
    for await (const e of await create(ask))
      if (e.usage ?? e.message?.usage) seen.push(e.usage ?? e.message.usage);
    assert.ok(seen.at(-1).cache_read_input_tokens > 0);
    // What was said at the start is not contradicted: clients show the first, bill the last.
    for (const u of seen)
      assert.equal(u.input_tokens + u.cache_read_input_tokens,
        seen[0].input_tokens + seen[0].cache_read_input_tokens);
  });

  test("a last turn of the assistant is continued", async () => {
    const a = await create({ messages: [...ask, { role: "assistant", content: "Once upon a time" }] });
    const b = await create({ messages: [...ask, { role: "assistant", content: "Once upon a" }] });
    assert.ok(a.content[0].text.length > 5);
    assert.notDeepEqual(a.content, b.content);
  });

  test("errors", async () => {
    const refused = (kind, status, type) => (e) => {
      assert.ok(e instanceof kind, `${e?.constructor?.name}: ${e?.message}`);
      assert.equal(e.status, status);
      assert.equal(e.error.type, "error");
      assert.equal(e.error.error.type, type);
      return true;
    };
    const stranger = new Anthropic({ baseURL: server.url, apiKey: "no", maxRetries: 0 });
    await assert.rejects(stranger.messages.create({ model: NAME, max_tokens: 1, messages: ask }),
      refused(Anthropic.AuthenticationError, 401, "authentication_error"));
    await assert.rejects(create({ model: "claude" }), refused(Anthropic.NotFoundError, 404, "not_found_error"));
    for (const wrong of [{ max_tokens: 0 }, { max_tokens: undefined }, { messages: [] }, { system: 5 },
      { messages: [{ role: "user" }] }, { messages: [{ role: "king", content: "x" }] }, { temperature: "hot" },
      { tool_choice: { type: "any" }, tools: [] }, { stop_sequences: [""] },
      { messages: [{ role: "user", content: [{ type: "image", source: {} }] }] },
      { messages: [{ role: "user", content: "fox ".repeat(20000) }] }])
      await assert.rejects(create(wrong), refused(Anthropic.BadRequestError, 400, "invalid_request_error"),
        JSON.stringify(wrong).slice(0, 80));
  });

  test("a full server is overloaded_error, tried again by the client", async () => {
    const small = await Server.start(["--max-num-queued-reqs", "1"]);
    const c = new Anthropic({ baseURL: small.url, apiKey: "x", maxRetries: 0 });
    const stop = new AbortController();
    const hog = await fetch(`${small.url}/v1/completions`, { method: "POST", signal: stop.signal,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ prompt: RULES, max_tokens: 3000, ignore_eos: true, stream: true }) });
    await hog.body.getReader().read();
    const other = { model: NAME, max_tokens: 2, messages: ask };
    await assert.rejects(c.messages.create(other), (e) => {
      assert.ok(e instanceof Anthropic.InternalServerError);
      assert.deepEqual([e.status, e.error.error.type, e.headers.get("retry-after")], [503, "overloaded_error", "1"]);
      return true;
    });
    stop.abort();
    assert.equal((await c.messages.create(other, { maxRetries: 20 })).role, "assistant");
    await small.idle();
    await small.stop();
  });

  test("abort of a stream", async () => {
    const text = RULES.slice(0, 300);
    for await (const e of await create({ messages: [{ role: "user", content: text }], max_tokens: 2000, stream: true }))
      if (e.type === "content_block_delta") break;
    await server.idle();
  });
});
