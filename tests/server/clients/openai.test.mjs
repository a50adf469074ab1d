// openai.test.mjs - the official `openai` package.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { NAME, Server } from "./lib.mjs";

const KEY = "sk-one";
const STORY = "Once upon a time there was a little fox who lived at the edge of a large forest. ";
const long = { prompt: STORY.repeat(8), max_tokens: 3000, ignore_eos: true, temperature: 0 };
const ask = [{ role: "user", content: "Tell me a story." }];

async function collect(stream) {
  const out = [];
  for await (const chunk of stream) out.push(chunk);
  return out;
}

describe("openai", () => {
  let server, client;
  const chat = (more, o) => client.chat.completions.create({ model: NAME, messages: ask, ...more }, o);
  const text = (more, o) => client.completions.create({ model: NAME, prompt: "Once upon a", ...more }, o);

  before(async () => {
    server = await Server.start(["--api-key", KEY, "sk-two"]);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: KEY });
  });
  after(() => server.stop());

  test("models.list and retrieve", async () => {
    const list = await collect(await client.models.list());
    assert.deepEqual(list.map((m) => [m.id, m.object]), [[NAME, "model"]]);
    assert.equal(list[0].max_model_len, 4096);
    assert.deepEqual(await client.models.retrieve(NAME), list[0]);
    await assert.rejects(client.models.retrieve("gpt"), OpenAI.NotFoundError);
  });

  describe("chat.completions", () => {
    test("whole answers", async () => {
      const a = await chat({ max_tokens: 12, temperature: 0 });
      assert.match(a.id, /^chatcmpl-/);
      assert.equal(a.model, NAME);
      const { message, finish_reason: why } = a.choices[0];
      assert.equal(message.role, "assistant");
      assert.ok(message.content.length > 10);
      assert.equal(why, "length");
      assert.equal(a.usage.completion_tokens, 12);
      assert.equal(a.usage.total_tokens, a.usage.prompt_tokens + 12);
      const b = await chat({ max_completion_tokens: 12, max_tokens: 3, temperature: 0 });
      assert.equal(b.choices[0].message.content, message.content); // the newer field counts
    });

    test("a stream says what the whole answer says, a token in each chunk", async () => {
      const o = { max_tokens: 20, temperature: 0 };
      const whole = await chat(o);
      const chunks = await collect(await chat({ ...o, stream: true, stream_options: { include_usage: true } }));
      const last = chunks.pop();
      assert.deepEqual(last.choices, []);
      assert.equal(last.usage.completion_tokens, 20);
      assert.ok(last.usage.prompt_tokens_details.cached_tokens >= 0);
      assert.ok(chunks.every((c) => c.usage === null && c.choices.length === 1));
      assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
      assert.equal(chunks.length, 21);
      assert.equal(chunks.map((c) => c.choices[0].delta.content).join(""), whole.choices[0].message.content);
      assert.deepEqual(chunks.map((c) => c.choices[0].finish_reason).filter((x) => x), ["length"]);
      const bare = await collect(await chat({ ...o, stream: true }));
      assert.ok(bare.every((c) => c.choices.length === 1 && c.usage === undefined));
    });

    test("the helper that puts a stream together", async () => {
      const runner = client.chat.completions.stream({ model: NAME, messages: ask, max_tokens: 15, temperature: 0 });
      let told = "";
      runner.on("content", (delta) => (told += delta));
      const final = await runner.finalChatCompletion();
      assert.equal(final.choices[0].message.content, told);
      assert.equal(told, (await chat({ max_tokens: 15, temperature: 0 })).choices[0].message.content);
    });

    test("n=2", async () => {
      const o = { n: 2, max_tokens: 10, temperature: 1, seed: 3 };
      const whole = await chat(o);
      assert.deepEqual(whole.choices.map((c) => c.index), [0, 1]);
      const [one, two] = whole.choices.map((c) => c.message.content);
      assert.notEqual(one, two);
      const parts = ["", ""];
      for await (const c of await chat({ ...o, stream: true }))
        parts[c.choices[0].index] += c.choices[0].delta.content ?? "";
      assert.deepEqual(parts, [one, two]);
    });

    test("stop strings", async () => {
      const whole = (await chat({ max_tokens: 60, temperature: 0, ignore_eos: true })).choices[0].message.content;
      const word = whole.split(" ")[6];
      const earlier = whole.slice(0, whole.indexOf(word));
      for (const stop of [word, ["never there", word]]) {
        const a = await chat({ max_tokens: 60, temperature: 0, stop });
        assert.equal(a.choices[0].message.content, earlier);
        assert.equal(a.choices[0].finish_reason, "stop");
        assert.equal(a.choices[0].stop_reason, word);
        const s = await collect(await chat({ max_tokens: 60, temperature: 0, stop, stream: true }));
        assert.equal(s.map((c) => c.choices[0].delta.content ?? "").join(""), earlier);
        assert.equal(s.at(-1).choices[0].finish_reason, "stop");
      }
    });

    test("log-probabilities", async () => {
      const o = { max_tokens: 8, temperature: 0, logprobs: true, top_logprobs: 4 };
      const a = await chat(o);
      const list = a.choices[0].logprobs.content;
      assert.equal(list.length, 8);
      assert.equal(list.map((t) => t.token).join(""), a.choices[0].message.content);
      for (const t of list) {
        assert.equal(t.top_logprobs.length, 4);
        assert.deepEqual([t.token, t.logprob], [t.top_logprobs[0].token, t.top_logprobs[0].logprob]); // greedy
        const p = t.top_logprobs.map((x) => x.logprob);
        assert.deepEqual(p, [...p].sort((x, y) => y - x));
        assert.ok(p[0] <= 0);
        assert.equal(Buffer.from(t.bytes).toString(), t.token);
      }
      const s = await collect(await chat({ ...o, stream: true }));
      assert.deepEqual(s.flatMap((c) => c.choices[0].logprobs?.content ?? []), list);
      assert.equal((await chat({ max_tokens: 2 })).choices[0].logprobs, null);
    });

    test("a seed tells the answer", async () => {
      const say = async (seed) => (await chat({ max_tokens: 24, temperature: 1, seed })).choices[0].message.content;
      const [a, b, c] = await Promise.all([say(11), say(11), say(12)]);
      assert.equal(a, b);
      assert.notEqual(a, c);
      assert.equal(await say(11), a);
      const free = await Promise.all([1, 2, 3].map(() => say(undefined)));
      assert.ok(new Set(free).size > 1);
    });

    test("logit_bias", async () => {
      const { tokens } = await client.post("/../tokenize", { body: { prompt: "fox", add_special_tokens: false } });
      const a = await chat({ max_tokens: 3, temperature: 0, logit_bias: { [tokens[0]]: 100 }, logprobs: true });
      assert.equal(new Set(a.choices[0].logprobs.content.map((t) => t.token)).size, 1);
    });
  });

  describe("completions", () => {
    test("a string, strings, token ids, lists of token ids", async () => {
      const o = { max_tokens: 6, temperature: 0 };
      const { tokens } = await client.post("/../tokenize", { body: { prompt: "Once upon a" } });
      const one = await text(o);
      assert.match(one.id, /^cmpl-/);
      assert.equal(one.choices.length, 1);
      assert.equal(one.usage.prompt_tokens, tokens.length);
      const says = one.choices[0].text;
      assert.equal((await text({ ...o, prompt: tokens })).choices[0].text, says);
      const two = await text({ ...o, prompt: ["A dog", "Once upon a"] });
      assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
      assert.equal(two.choices[1].text, says);
      const three = await text({ ...o, prompt: [tokens, [tokens[0], 500], tokens] });
      assert.deepEqual(three.choices.map((c) => c.text === says), [true, false, true]);
      assert.equal(three.usage.prompt_tokens, 2 * tokens.length + 2);
      const default_length = await text({ temperature: 0, ignore_eos: true });
      assert.equal(default_length.usage.completion_tokens, 16);
    });

    test("echo with log-probabilities", async () => {
      const a = (await text({ max_tokens: 4, temperature: 0, echo: true, logprobs: 2 })).choices[0];
      const l = a.logprobs;
      assert.ok(a.text.startsWith("Once upon a"));
      const n = l.tokens.length;
      assert.deepEqual([l.token_logprobs.length, l.top_logprobs.length, l.text_offset.length], [n, n, n]);
      assert.equal(l.token_logprobs[0], null);
      assert.ok(l.token_logprobs.slice(1).every((x) => x <= 0));
      assert.ok(l.top_logprobs.slice(1).every((x) => [1, 2, 3].includes(Object.keys(x).length)));
      assert.ok(l.tokens.join("").endsWith(a.text));
      const scored = (await text({ max_tokens: 0, echo: true, logprobs: 2, prompt: a.text })).choices[0];
      assert.equal(scored.text, a.text);
      // The same but for rounding: prompts take the expanded form of attention, new tokens the absorbed, some in BF16.
      assert.equal(scored.logprobs.token_logprobs.length, n);
      scored.logprobs.token_logprobs.slice(1).forEach((x, i) =>
        assert.ok(Math.abs(x - l.token_logprobs[i + 1]) < 1e-3, `${x} ${l.token_logprobs[i + 1]}`));
    });

    test("several in one stream", async () => {
      const o = { prompt: ["Once upon a", "A dog", "The sea"], n: 2, max_tokens: 8, temperature: 1, seed: 5 };
      const whole = await text(o);
      const parts = Array(6).fill(""), ends = Array(6).fill(null);
      let usage;
      for await (const c of await text({ ...o, stream: true, stream_options: { include_usage: true } })) {
        usage = c.usage;
        for (const x of c.choices) {
          assert.equal(ends[x.index], null, "a chunk after the end");
          parts[x.index] += x.text;
          ends[x.index] = x.finish_reason;
        }
      }
      assert.deepEqual(parts, whole.choices.map((c) => c.text));
      assert.deepEqual(ends, whole.choices.map((c) => c.finish_reason));
      assert.deepEqual({ ...usage, prompt_tokens_details: 0 }, { ...whole.usage, prompt_tokens_details: 0 });
    });
  });

  describe("errors", () => {
    const refused = (kind, status, more) => (e) => {
      assert.ok(e instanceof kind, `${e?.constructor?.name}: ${e?.message}`);
      assert.equal(e.status, status);
      assert.ok(e.message.length > 10);
      for (const [k, v] of Object.entries(more ?? {})) assert.equal(e[k], v, k);
      return true;
    };

    test("401", async () => {
      for (const apiKey of ["sk-", "sk-onee", "sk-on", "x"]) {
        const c = new OpenAI({ baseURL: `${server.url}/v1`, apiKey });
        await assert.rejects(c.models.list(), refused(OpenAI.AuthenticationError, 401));
      }
      const other = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "sk-two" });
      assert.equal((await other.models.list()).data.length, 1);
    });

    test("404", async () => {
      await assert.rejects(chat({ model: "gpt" }), refused(OpenAI.NotFoundError, 404, { param: "model" }));
      await assert.rejects(client.get("/nothing"), refused(OpenAI.NotFoundError, 404));
    });

    test("400 names the field", async () => {
      const wrong = { temperature: -1, top_p: 2, n: 0, max_tokens: -5, stop: Array(100).fill("x"),
        logit_bias: { fox: 1 }, messages: "hello", response_format: { type: "json_schema" }, seed: "a",
        top_logprobs: 3, stream_options: { include_usage: true }, cache_salt: "" };
      for (const [param, v] of Object.entries(wrong))
        await assert.rejects(chat({ [param]: v }), refused(OpenAI.BadRequestError, 400, { param }));
      await assert.rejects(chat({ messages: [{ role: "user", content: "fox ".repeat(20000) }] }),
        refused(OpenAI.BadRequestError, 400, { param: "messages" }));
      await assert.rejects(text({ max_tokens: 5000 }), refused(OpenAI.BadRequestError, 400, { param: "max_tokens" }));
    });

    test("503 with Retry-After is tried again", async () => {
      const small = await Server.start(["--max-num-queued-reqs", "1"]);
      const c = new OpenAI({ baseURL: `${small.url}/v1`, apiKey: "x" });
      const hog = await c.completions.create({ model: NAME, ...long, stream: true });
      const it = hog[Symbol.asyncIterator]();
      await it.next();
      await assert.rejects(c.completions.create({ model: NAME, prompt: "a" }, { maxRetries: 0 }),
        refused(OpenAI.InternalServerError, 503));
      let refusals = 0;
      const counting = new OpenAI({ baseURL: `${small.url}/v1`, apiKey: "x", maxRetries: 20,
        fetch: async (...args) => {
          const r = await fetch(...args);
          if (r.status === 503) {
            assert.equal(r.headers.get("retry-after"), "1");
            if (++refusals === 1) hog.controller.abort();
          }
          return r;
        } });
      const a = await counting.completions.create({ model: NAME, prompt: "a", max_tokens: 3 });
      assert.ok(a.choices[0].text.length > 0);
      assert.ok(refusals >= 1);
      await small.idle();
      await small.stop();
    });
  });

  // A client that loses interest: its work must end long before its 3,000 tokens are there.
  describe("abort", () => {
    // The engine gives everything back first, then the server counts it: a moment may lie between.
    const aborted = async (n) => {
      await server.idle();
      await server.until(`${n} aborts`, (m) => m("vllm:request_success_total", 'reason="abort"') >= n);
      assert.equal(await server.metric("vllm:request_success_total", 'reason="abort"'), n);
    };

    test("of a stream, by the iterator and by a signal", async () => {
      const earlier = await server.metric("vllm:request_success_total", 'reason="abort"');
      for await (const c of await text({ ...long, stream: true })) if (c.choices[0].text) break;
      await aborted(earlier + 1);
      const stop = new AbortController();
      const s = await text({ ...long, stream: true }, { signal: stop.signal });
      await s[Symbol.asyncIterator]().next();
      stop.abort();
      await aborted(earlier + 2);
    });

    test("of a request without a stream", async () => {
      const earlier = await server.metric("vllm:request_success_total", 'reason="abort"');
      const stop = new AbortController();
      const a = text({ ...long, n: 2 }, { signal: stop.signal });
      const lost = assert.rejects(a, OpenAI.APIUserAbortError);
      await server.until("two requests run", (m) => m("vllm:num_requests_running") === 2);
      stop.abort();
      await lost;
      await aborted(earlier + 2);
    });

    test("by the time limit of the client", async () => {
      const earlier = await server.metric("vllm:request_success_total", 'reason="abort"');
      await assert.rejects(text(long, { timeout: 2000, maxRetries: 0 }), OpenAI.APIConnectionTimeoutError);
      await aborted(earlier + 1);
    });
  });
});
