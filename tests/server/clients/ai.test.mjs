// ai.test.mjs - Vercel's `ai` with `@ai-sdk/openai-compatible`.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { APICallError, generateText, streamText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { NAME, Server } from "./lib.mjs";

describe("ai", () => {
  let server, model, completion;
  const ask = (more) => ({ model, prompt: "Tell me a story.", maxOutputTokens: 12, temperature: 0, maxRetries: 0, ...more });

  before(async () => {
    server = await Server.start(["--api-key", "key"]);
    const provider = createOpenAICompatible({ name: "nibble", baseURL: `${server.url}/v1`, apiKey: "key", includeUsage: true });
    model = provider(NAME);
    completion = provider.completionModel(NAME);
  });
  after(() => server.stop());

  test("generateText", async () => {
    const a = await generateText(ask({ system: "You are kind." }));
    assert.ok(a.text.length > 10);
    assert.equal(a.finishReason, "length");
    assert.equal(a.usage.outputTokens, 12);
    assert.ok(a.usage.inputTokens > 5);
    assert.equal(a.usage.totalTokens, a.usage.inputTokens + 12);
    assert.deepEqual(a.warnings ?? [], []);
    assert.match(a.response.id, /^chatcmpl-/);
    assert.equal(a.response.modelId, NAME);
  });

  test("streamText", async () => {
    const whole = await generateText(ask());
    const s = streamText(ask());
    const parts = [];
    for await (const t of s.textStream) parts.push(t);
    assert.equal(parts.join(""), whole.text);
    assert.ok(parts.length > 8);
    assert.equal(await s.finishReason, "length");
    const usage = await s.usage;
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [whole.usage.inputTokens, 12]);
  });

  test("usage tells what came from the cache", async () => {
    const long = ask({ prompt: "A little fox lived at the edge of a large forest. ".repeat(20) });
    await generateText(long);
    const a = await generateText(long);
    assert.ok(a.usage.inputTokens - 65 <= (a.usage.cachedInputTokens ?? a.usage.inputTokenDetails.cacheReadTokens));
    const s = streamText(long);
    await s.consumeStream();
    const usage = await s.usage;
    assert.ok((usage.cachedInputTokens ?? usage.inputTokenDetails.cacheReadTokens) > 0);
  });

  test("messages, stop strings, a seed", async () => {
    const talk = { messages: [{ role: "user", content: "Hello" }, { role: "assistant", content: "Hello!" },
      { role: "user", content: [{ type: "text", text: "Tell me a story." }] }], prompt: undefined, maxOutputTokens: 30 };
    const a = await generateText(ask(talk));
    const word = a.text.split(" ")[4];
    const b = await generateText(ask({ ...talk, stopSequences: [word] }));
    assert.equal(b.finishReason, "stop");
    assert.equal(b.text, a.text.slice(0, a.text.indexOf(word)));
    const free = { temperature: 1, topP: 0.95, presencePenalty: 0.1, frequencyPenalty: 0.1, seed: 4 };
    assert.equal((await generateText(ask(free))).text, (await generateText(ask(free))).text);
  });

  test("completions", async () => {
    const a = await generateText(ask({ model: completion, prompt: "Once upon a time" }));
    assert.ok(a.text.length > 5);
    const s = streamText(ask({ model: completion, prompt: "Once upon a time" }));
    assert.equal(await s.text, a.text);
  });

  test("errors", async () => {
    const wrong = createOpenAICompatible({ name: "x", baseURL: `${server.url}/v1`, apiKey: "no" })(NAME);
    await assert.rejects(generateText(ask({ model: wrong })), (e) => APICallError.isInstance(e) && e.statusCode === 401);
    await assert.rejects(generateText(ask({ temperature: -3 })),
      (e) => APICallError.isInstance(e) && e.statusCode === 400 && !e.isRetryable && /temperature/.test(e.message));
    const parts = [];
    for await (const p of streamText({ ...ask({ temperature: -3 }), onError: () => {} }).fullStream) parts.push(p.type);
    assert.ok(parts.includes("error"));
  });

  test("abort", async () => {
    const stop = new AbortController();
    const s = streamText({ ...ask({ maxOutputTokens: 3000, abortSignal: stop.signal }), onError: () => {} });
    for await (const t of s.textStream) if (t) break;
    stop.abort();
    await server.idle();
  });
});
