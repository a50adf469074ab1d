// compatcanary.test.mjs - the conformance scanner `compatcanary`.
//
// Tool calls, structured output and the Responses API are not served: these probes must be refused
// with a clear 4xx, and everything else must pass.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { NAME, Server, TMP } from "./lib.mjs";

const SERVED = ["models.list", "chat.basic", "chat.streaming"];

describe("compatcanary", () => {
  let server, report;

  before(async () => {
    server = await Server.start();
    const out = path.join(TMP, "canary.json");
    const cli = path.join(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname),
      "node_modules", "compatcanary", "src", "cli.js");
    const { stderr, error } = spawnSync(process.execPath, [cli, "scan", "--base-url", `${server.url}/v1`, "--model", NAME,
      "--format", "json", "--output", out, "--fail-on", "never", "--timeout", "120"], { encoding: "utf8" });
    assert.ok(fs.existsSync(out), `no report: ${error ?? stderr}`);
    report = JSON.parse(fs.readFileSync(out, "utf8"));
  });
  after(() => server.stop());

  test("what is served passes", () => {
    for (const id of SERVED) {
      const r = report.results.find((x) => x.id === id);
      assert.equal(r?.status, "pass", JSON.stringify(r));
    }
    console.log(`compatcanary: score ${report.score}, ${report.summary.passes} of ${report.summary.total} probes pass`);
  });

  test("what is not served is refused with a reason", () => {
    for (const r of report.results.filter((x) => !SERVED.includes(x.id) && x.status !== "pass")) {
      assert.ok([400, 404].includes(r.error.httpStatus), JSON.stringify(r));
      const { error } = JSON.parse(r.error.responseBody);
      assert.ok(error.message.length > 10 && error.type, r.error.responseBody);
      if (r.error.httpStatus === 400) assert.match(error.message, /not supported/);
    }
  });
});
