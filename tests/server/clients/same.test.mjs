// same.test.mjs - the same request, the same answer: cold, warm, in a crowd, on another server.
//
// Text and log-probabilities are compared as they are printed, which is all of their bits.
import { describe, test } from "node:test";
import assert from "node:assert/strict";
import { Server, events, random } from "./lib.mjs";

const STORY = "Once upon a time there was a little fox who lived at the edge of a large forest. ";
const more = { max_tokens: 16, ignore_eos: true };
const REQUESTS = [
  ["/v1/completions", { prompt: STORY.repeat(12), temperature: 0, logprobs: 3, ...more }],
  ["/v1/completions", { prompt: STORY.repeat(7), temperature: 1, seed: 7, n: 2, logprobs: 2, ...more }],
  ["/v1/completions", { prompt: STORY, temperature: 0, echo: true, logprobs: 2, ...more }],
  ["/v1/completions", { prompt: `The bear. ${STORY.repeat(5)}`, temperature: 1, seed: 1, logprobs: 1, stream: true, ...more }],
  ["/v1/chat/completions", { messages: [{ role: "user", content: STORY.repeat(5) }], temperature: 0.8, top_p: 0.9,
    seed: 2, logprobs: true, top_logprobs: 5, repetition_penalty: 1.1, ...more }],
  ["/v1/messages", { model: "nibble-tiny", messages: [{ role: "user", content: STORY.repeat(4) }], max_tokens: 16, temperature: 0 }],
];

// What must be the same: neither ids, times nor what came from the cache.
const essence = (answer) => {
  assert.equal(answer.status, 200, answer.text);
  const docs = answer.json ? [answer.json] : events(answer.text);
  return JSON.stringify(docs.map((d) => d.choices ?? d.content ?? d));
};

const all = async (server) => {
  const out = [];
  for (const [where, body] of REQUESTS) out.push(essence(await server.post(where, body)));
  return out;
};

const cached = (answer) => answer.json.usage.prompt_tokens_details.cached_tokens;

describe("the same answer", () => {
  let cold;

  test("cold, warm, in a crowd of 64", async () => {
    const server = await Server.start(["--max-num-seqs", "64", "--kv-cache-memory-bytes", "64M"]);
    cold = await all(server);
    assert.deepEqual(await all(server), cold, "warm");
    assert.ok(cached(await server.post(...REQUESTS[0])) > 64, "nothing came from the cache: nothing was tested");
    assert.equal((await server.post("/reset_prefix_cache")).status, 200);
    assert.equal(cached(await server.post(...REQUESTS[0])), 0);

    const rng = random(1), crowd = [];
    for (let i = 0; i < 64; i++)
      crowd.push(server.post("/v1/completions", { prompt: `${i} ${STORY.repeat(1 + Math.floor(rng() * 2))}`,
        max_tokens: 32 + Math.floor(rng() * 32), temperature: rng() * 1.2, seed: i, ignore_eos: true,
        stream: rng() < 0.5, n: rng() < 0.2 ? 2 : 1 }));
    await server.until("a crowd", (m) =>
      m("vllm:num_requests_running") + m("vllm:num_requests_waiting") > 40);
    const inCrowd = (await Promise.all(REQUESTS.map(([w, b]) => server.post(w, b)))).map(essence);
    assert.deepEqual(inCrowd, cold, "in a crowd");
    for (const a of await Promise.all(crowd)) assert.equal(a.status, 200, a.text);
    await server.idle();
    await server.stop();
  });

  for (const [name, args] of Object.entries({
    "one thread, a token budget of 48": ["--threads", "1", "--max-num-batched-tokens", "48", "--max-num-seqs", "8"],
    "three threads, chunks of 17, no prefix cache": ["--threads", "3", "--long-prefill-token-threshold", "17",
      "--no-enable-prefix-caching"],
    "a pool so small that requests are preempted": ["--num-gpu-blocks-override", "11", "--max-model-len", "640"],
  }))
    test(name, async () => {
      const server = await Server.start(args);
      const preempt = name.includes("preempted"), crowd = [];
      for (let i = 0; preempt && i < 10; i++)
        crowd.push(server.post("/v1/completions", { prompt: `${i} bears`, max_tokens: 90, seed: i, ignore_eos: true }));
      const together = await Promise.all(REQUESTS.map(([w, b]) => server.post(w, b)));
      assert.deepEqual(together.map(essence), cold);
      for (const a of await Promise.all(crowd)) assert.equal(a.status, 200, a.text);
      if (preempt) assert.ok(await server.metric("vllm:num_preemptions_total") > 0, "nothing was preempted");
      await server.idle();
      await server.stop();
    });
});
