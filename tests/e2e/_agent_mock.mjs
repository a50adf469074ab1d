// _agent_mock.mjs PORTFILE - answers chat requests with scripted calls, and checks what comes back.
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";

const call = (id, name, args) => ({ id, type: "function", function: { name, arguments: args } });

/** The answer to a conversation, by the number of its messages. */
function answer(messages) {
  const last = messages.at(-1);
  if (messages.length === 1)
    return {
      content: null,
      reasoning_content: "two tools",
      tool_calls: [
        call("functions.weather:0", "weather", '{"city": "Oslo"}'),
        call("functions.calculator:1", "calculator", '{"expression": "2 * (3 + -4) / 8"}'),
      ],
    };
  if (messages.length === 4) {
    if (messages[1].reasoning_content !== "two tools") return { content: "the reasoning is lost" };
    if (messages[2].tool_call_id !== "functions.weather:0") return { content: "an id is lost" };
    return {
      content: "",
      tool_calls: [
        call("functions.rm:2", "rm", "{}"),
        call("functions.calculator:3", "calculator", '{"expression": "process.exit(3)"}'),
        call("functions.calculator:4", "calculator", '{"expression"'),
      ],
    };
  }
  return { content: messages.filter((m) => m.role === "tool").map((m) => m.content).join("\n") || last.content };
}

const server = createServer((request, response) => {
  let body = "";
  request.on("data", (d) => (body += d));
  request.on("end", () => {
    const r = JSON.parse(body);
    const message = { role: "assistant", ...answer(r.messages) };
    if (request.url !== "/v1/chat/completions" || r.tools.length !== 2) {
      response.writeHead(404).end("wrong request");
      return;
    }
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: message.tool_calls ? "tool_calls" : "stop" }] }));
  });
});
server.listen(0, "127.0.0.1", () => writeFileSync(process.argv[2], String(server.address().port)));
