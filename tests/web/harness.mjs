// harness.mjs - what the tests of the page share: a server, Chromium, checks that are counted.
//
//   node SOME_test.mjs NIBBLE MODEL CHROMIUM [SCREENSHOTS]
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { chromium } from "playwright-core";

const [nibble, model, browserPath, shots] = process.argv.slice(2);
const WAIT = 180_000; // for what takes a moment; nothing is measured
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let failed = 0;
export async function check(name, fn) {
  try {
    await fn();
    console.log(`ok    ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL  ${name}\n      ${String(e?.stack ?? e).split("\n").slice(0, 8).join("\n      ")}`);
  }
}

export function startServer(...extra) {
  const child = spawn(nibble, ["serve", model, "--port", "0", "--kv-cache-dtype", "nvfp4", "--kv-cache-memory-bytes", "32M", ...extra], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  return new Promise((resolve, reject) => {
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}:\n${log}`)));
    child.stderr.on("data", (d) => {
      log += d;
      const at = log.match(/listening on (http:\/\/[^/"]*\/)/);
      if (at) resolve({ url: at[1], log: () => log, stop: () => (child.removeAllListeners("exit"), child.kill("SIGKILL")) });
    });
  });
}

const browser = await chromium.launch({
  executablePath: browserPath,
  // WebGL in software; all else by the painter for processors, which is many times faster than OpenGL in software.
  args: ["--no-sandbox", "--enable-unsafe-swiftshader", "--use-angle=swiftshader", "--disable-gpu-rasterization", "--disable-accelerated-2d-canvas",
    "--disable-component-update", "--disable-background-networking"],
});

/** In the page: of the cells only the first frame draws all, in the first page, then few: no check looks at pixels,
 * and 100,000 cells take a processor seconds. */
function drawFew(nWhole) {
  const proto = WebGL2RenderingContext.prototype, draw = proto.drawElementsInstanced;
  let n = 0;
  proto.drawElementsInstanced = function (mode, count, type, offset, cells) {
    draw.call(this, mode, count, type, offset, n++ < nWhole ? cells : Math.min(cells, 300));
  };
}
let nWhole = 3; // slabs

/** Layout and drawing of what was done before have happened. */
export const frames = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** A page that records what must not happen: errors, and requests to elsewhere. */
export async function open(url, options = {}) {
  const { hash = "", init, arg, allowed = [], ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1280, height: 840 }, colorScheme: "light", reducedMotion: "reduce", ...rest });
  context.setDefaultTimeout(WAIT);
  const page = await context.newPage();
  if (!shots) await page.addInitScript(drawFew, nWhole);
  nWhole = 0;
  if (init) await page.addInitScript(init, arg);
  const bad = [];
  page.on("console", (m) => {
    if ((m.type() === "error" || m.type() === "warning") && !allowed.some((a) => a.test(m.text()))) bad.push(`${m.type()}: ${m.text()}`);
  });
  page.on("pageerror", (e) => bad.push(`exception: ${e.message}`));
  page.on("request", (r) => {
    if (!r.url().startsWith(url) && !r.url().startsWith("data:")) bad.push(`request to ${r.url()}`);
  });
  await page.goto(url + hash);
  return { page, bad, context, close: () => context.close() };
}

/** A function that says how many seconds of a processor the page's main thread has used, by what: on a loaded machine
 * the clock says little. */
export async function processorTime(page) {
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => Object.fromEntries((await client.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));
}

export async function accessible(page, what) {
  // Of a table 40 rows, which scroll: the one with all values of a token has 576, and axe takes 4 ms for a cell.
  await page.evaluate(() => document.querySelectorAll("tbody tr:nth-child(n + 41)").forEach((row) => row.remove()));
  // Through the debugger: the page's own policy lets no script in.
  await page.evaluate(`(()=>{const module=undefined,define=undefined;${axe}})()`);
  const r = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const bad = r.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(bad.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | ")}`), [], what);
}

export const shot = async (page, name) => {
  if (shots) await page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
};
export const complete = (url, body) => fetch(`${url}v1/completions`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
export const usage = (page) => page.locator(".answer .usage").last().innerText();

export async function end() {
  await browser.close();
  console.log(failed ? `${failed} failed` : "all passed");
  process.exit(failed ? 1 : 0);
}
