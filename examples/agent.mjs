#!/usr/bin/env node
// agent.mjs - an agent with two tools against nibble's chat endpoint.  Node 18 or newer, no packages.
//
//   nibble serve MODEL --port 8000
//   node examples/agent.mjs "What is the weather in Oslo?" "What is 12 times 7?"
//
// Each argument is a turn of one conversation.  The loop: ask the model; while it calls tools, run them,
// add their results, ask again.  Options: --url http://127.0.0.1:8000/v1, --model NAME, --key KEY, --quiet.

const MAX_STEPS = 8; // answers of the model in one turn

const parameters = (name, description) => ({
  type: "object",
  properties: { [name]: { type: "string", description } },
  required: [name],
});

// ---- the tools ---------------------------------------------------------------------------------------

const SKY = ["sunny", "cloudy", "light rain", "fog"];

/** Made up, but the same for the same city. */
function weather({ city }) {
  const sum = [...city].reduce((n, c) => n + c.codePointAt(0), 0);
  return { temperature: (sum % 35) - 5, sky: SKY[sum % SKY.length] };
}

/** Numbers, + - * / and brackets.  The text comes from a model: it is parsed, never evaluated as code. */
function calculator({ expression }) {
  const tokens = expression.match(/\d+(\.\d+)?|[-+*/()]|\S/g) ?? [];
  let at = 0;
  const take = (t) => tokens[at] === t && ++at > 0;
  const fail = () => {
    throw new Error(`not an expression: ${expression}`);
  };
  const atom = () => {
    if (take("-")) return -atom();
    if (take("(")) {
      const v = sum();
      return take(")") ? v : fail();
    }
    return /^\d/.test(tokens[at] ?? "") ? Number(tokens[at++]) : fail();
  };
  const product = () => {
    let v = atom();
    for (;;) {
      if (take("*")) v *= atom();
      else if (take("/")) v /= atom();
      else return v;
    }
  };
  const sum = () => {
    let v = product();
    for (;;) {
      if (take("+")) v += product();
      else if (take("-")) v -= product();
      else return v;
    }
  };
  const v = sum();
  if (at < tokens.length) fail();
  return { result: Number(v.toFixed(3)) };
}

const TOOLS = [
  { run: weather, description: "The weather in a city", parameters: parameters("city", "The city") },
  { run: calculator, description: "Compute an expression", parameters: parameters("expression", "For instance 2 * (3 + 4)") },
];

/** A call's result as text; an error is a result, too, so that the model can react to it. */
function execute(call) {
  const tool = TOOLS.find((t) => t.run.name === call.function.name);
  try {
    if (!tool) throw new Error(`no tool is called ${call.function.name}`);
    return JSON.stringify(tool.run(JSON.parse(call.function.arguments)));
  } catch (e) {
    return `error: ${e.message}`;
  }
}

// ---- the loop ----------------------------------------------------------------------------------------

async function ask(options, messages) {
  const tools = TOOLS.map(({ run, description, parameters }) => ({
    type: "function",
    function: { name: run.name, description, parameters },
  }));
  const answer = await fetch(`${options.url}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(options.key && { authorization: `Bearer ${options.key}` }) },
    body: JSON.stringify({ model: options.model, messages, tools, temperature: 0 }),
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return (await answer.json()).choices[0];
}

/** One turn: the model's last answer.  messages grows by everything that was said. */
async function turn(options, messages, text) {
  messages.push({ role: "user", content: text });
  for (let step = 0; step < MAX_STEPS; step++) {
    const { message, finish_reason } = await ask(options, messages);
    messages.push(message); // with its reasoning: some models want it back within a turn
    if (finish_reason !== "tool_calls") return message.content ?? "";
    for (const call of message.tool_calls) {
      const content = execute(call);
      if (!options.quiet) console.error(`  ${call.function.name}(${call.function.arguments}) -> ${content}`);
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
  throw new Error(`no answer after ${MAX_STEPS} steps`);
}

async function main(args) {
  const options = { url: "http://127.0.0.1:8000/v1", model: undefined, key: "", quiet: false };
  const turns = [];
  while (args.length) {
    const a = args.shift();
    if (a === "--quiet") options.quiet = true;
    else if (a.startsWith("--") && a.slice(2) in options && args.length) options[a.slice(2)] = args.shift();
    else if (a.startsWith("--")) throw new Error(`unknown option ${a}, or its value is missing`);
    else turns.push(a);
  }
  if (!turns.length) throw new Error('usage: node agent.mjs [--url URL] [--model NAME] [--key KEY] [--quiet] "QUESTION"...');
  const messages = [];
  for (const t of turns) console.log(await turn(options, messages, t));
}

main(process.argv.slice(2)).catch((e) => {
  console.error(`agent: ${e.message}`);
  process.exitCode = 1;
});
