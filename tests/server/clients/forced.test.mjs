// forced.test.mjs - openai, @anthropic-ai/sdk and ai against a server whose model says what a test wants: tool calls
// and structured output, whole and as a stream.
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { NAME, NIBBLE, Server, TMP } from "./lib.mjs";

const program = path.join(path.dirname(NIBBLE), "nibble-forced");
const there = fs.existsSync(program);
const WEATHER = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city"], additionalProperties: false };
const CITY = { city: "São Paulo \"SP\"", days: 2 };
const call = (name, args) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
const RULES = [
  { if: ["22 degrees"], say: "It is 22 degrees in São Paulo." },
  { if: ["both"], say: `Let me look.\n${call("weather", CITY)}\n${call("weather", { city: "Köln" })}` },
  { if: ["weather like"], say: call("weather", CITY) },
  { if: ["as JSON"], say: JSON.stringify(CITY) },
  { if: ["greet"], say: "Hello there.\nHow are you?" },
];
const chatTool = { type: "function", function: { name: "weather", description: "The weather", parameters: WEATHER } };
const ask = (content) => [{ role: "user", content }];

let server;
if (there) {
  const rules = path.join(TMP, "rules.json");
  fs.writeFileSync(rules, JSON.stringify(RULES));
  server = await Server.start(["--chat-template", "tools.jinja"], { program, env: { NB_FORCED: rules } });
}
const o = there ? {} : { skip: "nibble-forced is not in this build" };

describe("openai", () => {
  const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "x", maxRetries: 0 });
  const create = (content, more) => client().chat.completions.create(
    { model: NAME, messages: ask(content), max_tokens: 200, ...more });

  // The chunks of a stream put together as a client does it.
  async function joined(stream) {
    const out = { content: "", calls: [], reason: null };
    for await (const { choices } of stream) {
      if (!choices.length) continue;
      const { delta, finish_reason: reason } = choices[0];
      out.content += delta.content ?? "";
      for (const c of delta.tool_calls ?? []) {
        const at = (out.calls[c.index] ??= { id: c.id, name: c.function.name, arguments: "" });
        at.arguments += c.function.arguments ?? "";
      }
      out.reason = reason ?? out.reason;
    }
    return out;
  }

  test("what is forced is what comes", o, async () => {
    const whole = await create("Please greet me.");
    assert.equal(whole.choices[0].message.content, "Hello there.\nHow are you?");
    assert.equal(whole.choices[0].finish_reason, "stop");
    const parts = await joined(await create("Please greet me.", { stream: true }));
    assert.equal(parts.content, "Hello there.\nHow are you?");
    const cut = await create("Please greet me.", { max_tokens: 2 });
    assert.equal(cut.choices[0].finish_reason, "length");
  });

  test("a call and its result", o, async () => {
    const { message, finish_reason: reason } = (await create("What is the weather like?", { tools: [chatTool] })).choices[0];
    assert.equal(reason, "tool_calls");
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    assert.equal(message.tool_calls[0].function.name, "weather");
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), CITY);
    const answer = await client().chat.completions.create({ model: NAME, max_tokens: 200, tools: [chatTool], messages: [
      ...ask("What is the weather like?"), message,
      { role: "tool", tool_call_id: message.tool_calls[0].id, content: "22 degrees" }] });
    assert.equal(answer.choices[0].message.content, "It is 22 degrees in São Paulo.");
    assert.equal(answer.choices[0].finish_reason, "stop");
  });

  test("two calls as a stream", o, async () => {
    const out = await joined(await create("Tell me both.", { tools: [chatTool], stream: true }));
    assert.equal(out.reason, "tool_calls");
    assert.equal(out.content.trim(), "Let me look.");
    assert.deepEqual(out.calls.map((c) => [c.name, JSON.parse(c.arguments)]),
      [["weather", CITY], ["weather", { city: "Köln" }]]);
    assert.equal(new Set(out.calls.map((c) => c.id)).size, 2);
  });

  test("structured output", o, async () => {
    const a = await client().chat.completions.parse({ model: NAME, messages: ask("The weather as JSON."), max_tokens: 200,
      response_format: { type: "json_schema", json_schema: { name: "w", strict: true, schema: WEATHER } } });
    assert.deepEqual(JSON.parse(a.choices[0].message.content), CITY);
  });

  test("responses", o, async () => {
    const a = await client().responses.create({ model: NAME, input: "Please greet me.", store: false });
    assert.equal(a.output_text, "Hello there.\nHow are you?");
    let text = "", last;
    for await (const e of await client().responses.create({ model: NAME, input: "Please greet me.", stream: true })) {
      if (e.type === "response.output_text.delta") text += e.delta;
      last = e;
    }
    assert.equal(text, a.output_text);
    assert.equal(last.type, "response.completed");
    assert.equal(last.response.status, "completed");
  });

  test("responses with a call", o, async () => {
    const tools = [{ type: "function", name: "weather", parameters: WEATHER, strict: false }];
    const a = await client().responses.create({ model: NAME, input: "What is the weather like?", tools });
    const made = a.output.find((item) => item.type === "function_call");
    assert.equal(made.name, "weather");
    assert.deepEqual(JSON.parse(made.arguments), CITY);
    const b = await client().responses.create({ model: NAME, tools, input: [
      { role: "user", content: "What is the weather like?" }, ...a.output,
      { type: "function_call_output", call_id: made.call_id, output: "22 degrees" }] });
    assert.equal(b.output_text, "It is 22 degrees in São Paulo.");
  });
});

describe("@anthropic-ai/sdk", () => {
  const client = () => new Anthropic({ baseURL: server.url, apiKey: "x", maxRetries: 0 });
  const tools = [{ name: "weather", description: "The weather", input_schema: WEATHER }];

  test("a stream of what is forced", o, async () => {
    const a = await client().messages.stream(
      { model: NAME, max_tokens: 200, messages: ask("Please greet me.") }).finalMessage();
    assert.equal(a.content[0].text, "Hello there.\nHow are you?");
    assert.equal(a.stop_reason, "end_turn");
  });

  test("a call and its result, whole and as a stream", o, async () => {
    const body = { model: NAME, max_tokens: 200, tools, messages: ask("What is the weather like?") };
    const whole = await client().messages.create(body), parts = await client().messages.stream(body).finalMessage();
    for (const a of [whole, parts]) {
      assert.equal(a.stop_reason, "tool_use");
      const use = a.content.find((b) => b.type === "tool_use");
      assert.equal(use.name, "weather");
      assert.deepEqual(use.input, CITY);
      const b = await client().messages.create({ ...body, messages: [...body.messages, { role: "assistant", content: a.content },
        { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "22 degrees" }] }] });
      assert.equal(b.content[0].text, "It is 22 degrees in São Paulo.");
    }
  });
});

describe("ai", () => {
  const model = () => createOpenAICompatible({ name: "nibble", baseURL: `${server.url}/v1`, apiKey: "x",
    supportsStructuredOutputs: true })(NAME);
  const asked = [];
  const tools = { weather: tool({ description: "The weather", inputSchema: jsonSchema(WEATHER),
    execute: async (input) => { asked.push(input); return "22 degrees"; } }) };

  test("generateText runs a tool and goes on", o, async () => {
    asked.length = 0;
    const a = await generateText({ model: model(), tools, prompt: "What is the weather like?", stopWhen: stepCountIs(3) });
    assert.deepEqual(asked, [CITY]);
    assert.equal(a.text, "It is 22 degrees in São Paulo.");
    assert.equal(a.steps.length, 2);
  });

  test("streamText runs two tools and goes on", o, async () => {
    asked.length = 0;
    const a = streamText({ model: model(), tools, prompt: "Tell me both.", stopWhen: stepCountIs(3) });
    let text = "";
    for await (const piece of a.textStream) text += piece;
    assert.deepEqual(asked, [CITY, { city: "Köln" }]);
    assert.ok(text.endsWith("It is 22 degrees in São Paulo."), text);
  });

  test("generateObject", o, async () => {
    const a = await generateObject({ model: model(), schema: jsonSchema(WEATHER), prompt: "The weather as JSON." });
    assert.deepEqual(a.object, CITY);
  });
});

if (there) after(() => server.stop());
