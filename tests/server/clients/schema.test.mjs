// schema.test.mjs - every kind of answer and every chunk against OpenAI's OpenAPI document.
//
// The document is not in the repository: NB_OPENAI_OPENAPI, or openai-openapi/openapi.yaml in the data
// folder.  Fields that it does not know are allowed (vLLM's additions).
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import fs from "node:fs";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { parseDocument } from "yaml";
import { NAME, Server, events } from "./lib.mjs";

const file = process.env.NB_OPENAI_OPENAPI;
const skip = file && fs.existsSync(file) ? false : "no OpenAPI document (NB_OPENAI_OPENAPI)";

const SCHEMAS = ["CreateChatCompletionResponse", "CreateChatCompletionStreamResponse",
  "CreateCompletionResponse", "ListModelsResponse", "Model", "ErrorResponse"];

// Only what the schemas above reach: the whole document is three megabytes.
function readSchemas() {
  const text = fs.readFileSync(file, "utf8");
  const at = text.search(/^ {2}schemas:$/m);
  assert.ok(at > 0, "components.schemas");
  const starts = [...text.slice(at).matchAll(/^ {4}([A-Za-z0-9_.-]+):$/gm)];
  const all = new Map(starts.map((m, i) =>
    [m[1], text.slice(at + m.index, i + 1 < starts.length ? at + starts[i + 1].index : undefined)]));
  const out = {}, todo = [...SCHEMAS];
  while (todo.length) {
    const name = todo.pop();
    if (out[name]) continue;
    assert.ok(all.has(name), `schema ${name}`);
    out[name] = parseDocument(all.get(name).replace(/^ {4}/gm, ""), { logLevel: "error" }).toJS()[name];
    for (const m of all.get(name).matchAll(/#\/components\/schemas\/([A-Za-z0-9_.-]+)/g)) todo.push(m[1]);
  }
  return out;
}

// OpenAPI 3.0's `nullable`, which the document still has in places, in words of JSON Schema.
function denull(s) {
  if (Array.isArray(s)) return s.map(denull);
  if (!s || typeof s !== "object") return s;
  const { nullable, ...rest } = Object.fromEntries(Object.entries(s).map(([k, v]) => [k, denull(v)]));
  return nullable === true ? { anyOf: [rest, { type: "null" }] } : rest;
}

// Where OpenAI's own API, or vLLM's, whose wire format this is, differs from the document.
function mend(schemas) {
  const orNull = (s) => ({ anyOf: [s, { type: "null" }] });
  const completion = schemas.CreateCompletionResponse.properties;
  const choice = completion.choices.items.properties;
  const lists = choice.logprobs.anyOf[0].properties;
  // Chunks share the schema of whole answers, so these must be able to be null.
  choice.finish_reason = orNull(choice.finish_reason);
  completion.usage = orNull(completion.usage);
  // echo: nothing predicts the first token.
  lists.token_logprobs.items = orNull(lists.token_logprobs.items);
  lists.top_logprobs.items = orNull(lists.top_logprobs.items);
  // vLLM: the status as a number.
  schemas.Error.properties.code.anyOf.push({ type: "integer" });
  return schemas;
}

const TALK = [{ role: "system", content: "You are kind." }, { role: "user", content: "Tell me a story." }];
const chat = (more) => ["/v1/chat/completions",
  { model: NAME, messages: TALK, max_tokens: 5, temperature: 0, ...more }];
const text = (more) => ["/v1/completions",
  { model: NAME, prompt: "Once upon", max_tokens: 5, temperature: 0, ...more }];
const usage = { stream: true, stream_options: { include_usage: true } };
const every = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };

const ANSWERS = [
  chat(), chat({ n: 3, temperature: 1 }), chat({ logprobs: true }), chat({ logprobs: true, top_logprobs: 20 }),
  chat({ stop: "." , max_tokens: 60 }), chat({ return_token_ids: true, prompt_logprobs: 2 }),
  chat({ stream: true }), chat(usage), chat(every), chat({ ...usage, n: 2, temperature: 1 }),
  chat({ ...usage, logprobs: true, top_logprobs: 3 }), chat({ ...usage, stop: ["."], max_tokens: 60 }),
  chat({ ...usage, return_token_ids: true }), chat({ ...usage, max_tokens: 1 }),
  chat({ max_tokens: null, max_completion_tokens: 3 }),
  text(), text({ prompt: ["Once", "A dog"], n: 2, temperature: 1 }), text({ prompt: [400, 401] }),
  text({ prompt: [[400, 401], [500]] }), text({ logprobs: 0 }), text({ logprobs: 5 }),
  text({ echo: true, logprobs: 3 }), text({ echo: true, max_tokens: 0, logprobs: 1 }), text({ echo: true }),
  text({ return_token_ids: true, prompt_logprobs: 1 }), text({ stop: ",", max_tokens: 40 }),
  text({ stream: true }), text(usage), text(every), text({ ...usage, logprobs: 2 }),
  text({ ...usage, echo: true, logprobs: 2 }), text({ ...usage, prompt: ["Once", "A dog"], n: 2 }),
  text({ ...usage, stop: ",", max_tokens: 40 }), text({ ...usage, return_token_ids: true }),
];

const ERRORS = [
  ["POST", ...chat({ model: "another" }), 404], ["POST", ...text({ model: "another" }), 404],
  ["POST", ...chat({ messages: [] }), 400], ["POST", ...chat({ temperature: -1 }), 400],
  ["POST", ...text({ max_tokens: 100000 }), 400], ["POST", ...text({ prompt: [999999] }), 400],
  ["POST", ...chat({ tool_choice: "required", tools: [] }), 400],
  ["POST", ...chat({ response_format: { type: "json_schema", json_schema: {} } }), 400],
  ["POST", "/v1/completions", "{", 400], ["POST", "/v1/completions", "[]", 400],
  ["GET", "/v1/nothing", undefined, 404], ["GET", "/v1/models/another", undefined, 404], ["GET", "/v1/completions", undefined, 405],
  ["POST", "/v1/models", {}, 405],
];

describe("OpenAI's schemas", { skip }, () => {
  let server, closed;
  const valid = {};

  before(async () => {
    const ajv = new Ajv2020({ strict: false, allErrors: true, logger: false });
    addFormats(ajv);
    ajv.addFormat("unixtime", { type: "number", validate: (t) => Number.isSafeInteger(t) && t > 1e9 });
    const schemas = mend(denull(readSchemas()));
    ajv.addSchema({ $id: "openai", components: { schemas } });
    for (const s of SCHEMAS) valid[s] = ajv.compile({ $ref: `openai#/components/schemas/${s}` });
    server = await Server.start();
    closed = await Server.start(["--api-key", "secret", "--max-num-queued-reqs", "1"]);
  });

  after(async () => {
    await server.stop();
    await closed.stop();
  });

  function check(schema, doc) {
    const ok = valid[schema](doc);
    assert.ok(ok, `${schema}: ${JSON.stringify(valid[schema].errors)}\n${JSON.stringify(doc)}`);
  }

  test("the checker refuses what is wrong", () => {
    const good = { id: "a", object: "chat.completion", created: 1700000000, model: "m", choices: [
      { index: 0, finish_reason: "stop", logprobs: null, message: { role: "assistant", content: "x", refusal: null } }] };
    check("CreateChatCompletionResponse", good);
    for (const bad of [{ ...good, created: "now" }, { ...good, object: "chat" }, { ...good, choices: [{}] },
      { ...good, choices: [{ ...good.choices[0], finish_reason: null }] }])
      assert.equal(valid.CreateChatCompletionResponse(bad), false);
  });

  for (const [where, body] of ANSWERS)
    test(`${where} ${JSON.stringify({ ...body, model: undefined, messages: undefined })}`, async () => {
      const answer = await server.post(where, body);
      assert.equal(answer.status, 200, answer.text);
      const isChat = where.includes("chat");
      if (!body.stream) {
        check(isChat ? "CreateChatCompletionResponse" : "CreateCompletionResponse", answer.json);
        return;
      }
      const chunks = events(answer.text);
      assert.equal(chunks.pop(), "[DONE]");
      assert.ok(chunks.length > 2 || body.max_tokens === 1);
      for (const c of chunks) check(isChat ? "CreateChatCompletionStreamResponse" : "CreateCompletionResponse", c);
      assert.deepEqual([...new Set(chunks.map((c) => `${c.id} ${c.created} ${c.model}`))].length, 1);
    });

  test("/v1/models", async () => {
    check("ListModelsResponse", (await server.get("/v1/models")).json);
    check("Model", (await server.get(`/v1/models/${NAME}`)).json);
  });

  for (const [method, where, body, status] of ERRORS)
    test(`${method} ${where} is refused with ${status}: ${JSON.stringify(body)}`, async () => {
      const answer = method === "GET" ? await server.get(where) : await server.post(where, body);
      assert.equal(answer.status, status, answer.text);
      check("ErrorResponse", answer.json);
    });

  test("401, 413, 415 and 503 are error objects too", async () => {
    const no = await closed.get("/v1/models");
    assert.equal(no.status, 401);
    check("ErrorResponse", no.json);
    const key = { Authorization: "Bearer secret" };
    const big = await closed.post("/v1/completions", Buffer.alloc(17 << 20, 32), key);
    assert.equal(big.status, 413);
    check("ErrorResponse", big.json);
    const type = await closed.post("/v1/completions", "{}", { ...key, "Content-Type": "text/plain" });
    assert.equal(type.status, 400);
    check("ErrorResponse", type.json);
    const full = await closed.post("/v1/completions", { prompt: "a", n: 2 }, key);
    assert.equal(full.status, 503);
    check("ErrorResponse", full.json);
  });
});
