// compatcanary.test.mjs - the conformance scanner `compatcanary`: every probe passes.
//
// One exception: it sends a streamed response without a length, and the bundled model may write to the
// end of its context; then the last event is response.incomplete instead of response.completed.
import { after, before, describe, test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { NAME, Server, TMP } from "./lib.mjs";

const PROBES = 7;
const ENDLESS = { id: "responses.streaming", summary: "Expected response.completed event" };

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

  test("every probe passes", () => {
    assert.equal(report.results.length, PROBES);
    for (const r of report.results)
      assert.ok(r.status === "pass" || (r.id === ENDLESS.id && r.summary === ENDLESS.summary), JSON.stringify(r));
    console.log(`compatcanary: score ${report.score}, ${report.summary.passes} of ${report.summary.total} probes pass`);
  });
});
