// killed.test.mjs - clients that are killed (SIGKILL) in each state of their request.
//
// The state is read in /metrics before the kill; afterwards nothing may run, wait or hold blocks, the
// abort is counted, and a request that ran beside it says what it says alone.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { Server, hasProgram, start } from "./lib.mjs";

const STORY = "Once upon a time there was a little fox who lived at the edge of a large forest. ";
const NEIGHBOUR = { prompt: "The old bear", max_tokens: 40, temperature: 0, ignore_eos: true, logprobs: 1 };
const BLOCK = 64 * 2478; // bytes
const skip = hasProgram("curl") ? false : "no curl";

describe("a killed client", { skip }, () => {
  let server, alone, nPrompt = 0;

  before(async () => {
    // Two requests at a time in the engine, so that a third one waits; small steps.
    server = await Server.start(["--max-num-seqs", "2", "--max-num-batched-tokens", "64",
      "--long-prefill-token-threshold", "32"]);
    alone = (await server.post("/v1/completions", NEIGHBOUR)).json.choices;
  });
  after(() => server.stop());

  // A prompt that nothing is cached of, so that its prefill takes its time.
  const newPrompt = (repeats) => `${nPrompt++} ${STORY.repeat(repeats)}`;

  function client(body) {
    const c = start(["curl", "-sN", "--no-buffer", `${server.url}/v1/completions`, "-H", "Content-Type: application/json",
      "-d", JSON.stringify(body)], { stdio: ["ignore", "pipe", "ignore"] });
    c.text = "";
    c.stdout.on("data", (d) => (c.text += d));
    return c;
  }

  const kill = (c) => c.end("SIGKILL");

  const aborts = () => server.metric("vllm:request_success_total", 'reason="abort"');
  // The engine gives everything back first, then the server counts it: a moment may lie between.
  const counted = async (n) => {
    await server.until(`${n} aborts`, (m) => m("vllm:request_success_total", 'reason="abort"') >= n);
    assert.equal(await aborts(), n);
  };

  for (const stream of [true, false]) {
    const how = stream ? "with a stream" : "without a stream";

    test(`in prefill, ${how}`, async () => {
      const n = await aborts();
      const neighbour = server.post("/v1/completions", NEIGHBOUR);
      const tokens = await server.metric("vllm:generation_tokens_total");
      const c = client({ prompt: newPrompt(160), max_tokens: 500, ignore_eos: true, stream });
      await server.until("it computes its prompt", (m) => m("vllm:num_requests_running") >= 1 &&
        m("nibble:kv_pool_bytes", 'use="held"') > 20 * BLOCK);
      assert.equal(c.text, "", "no token can be there yet");
      await kill(c);
      assert.deepEqual((await neighbour).json.choices, alone);
      await server.idle();
      await counted(n + 1);
      assert.ok(await server.metric("vllm:generation_tokens_total") <= tokens + NEIGHBOUR.max_tokens,
        "tokens came out of an aborted prefill");
    });

    test(`while it generates, ${how}`, async () => {
      const n = await aborts(), tokens = await server.metric("vllm:generation_tokens_total");
      const neighbour = server.post("/v1/completions", NEIGHBOUR);
      const c = client({ prompt: newPrompt(2), max_tokens: 3000, ignore_eos: true, stream });
      if (stream)
        await server.until("tokens at the client", () => (c.text.match(/data: /g) ?? []).length > 5);
      else
        await server.until("tokens", (m) => m("vllm:generation_tokens_total") > tokens + NEIGHBOUR.max_tokens + 5);
      await kill(c);
      assert.deepEqual((await neighbour).json.choices, alone);
      await server.idle();
      await counted(n + 1);
      assert.ok(await server.metric("vllm:generation_tokens_total") < tokens + 2000, "it was computed to the end");
    });

    test(`in the queue, ${how}`, async () => {
      const n = await aborts();
      const hogs = [0, 1].map(() => client({ prompt: newPrompt(1), max_tokens: 3000, ignore_eos: true, stream: true }));
      await server.until("two run", (m) => m("vllm:num_requests_running") === 2);
      const c = client({ prompt: newPrompt(4), max_tokens: 50, stream });
      await server.until("one waits", (m) => m("vllm:num_requests_waiting") === 1);
      await kill(c);
      await server.until("it waits no longer, the others run on", (m) =>
        m("vllm:num_requests_waiting") === 0 && m("vllm:num_requests_running") === 2);
      await counted(n + 1);
      await Promise.all(hogs.map(kill));
      await server.idle();
      await counted(n + 3);
      assert.deepEqual((await server.post("/v1/completions", NEIGHBOUR)).json.choices, alone);
    });
  }

  test("with several choices, and many at once", async () => {
    const n = await aborts();
    const all = [];
    for (let i = 0; i < 12; i++)
      all.push(client({ prompt: newPrompt(1 + i * 4), max_tokens: 3000, ignore_eos: true, stream: i % 2 === 0, n: 1 + (i % 3) }));
    await server.until("they are there", (m) =>
      m("vllm:num_requests_running") + m("vllm:num_requests_waiting") === 24);
    await Promise.all(all.map(kill));
    await server.idle();
    await counted(n + 24);
    assert.deepEqual((await server.post("/v1/completions", NEIGHBOUR)).json.choices, alone);
  });
});
