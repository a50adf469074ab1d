// reports_test.mjs - pages that commands wrote, in headless Chromium: light, dark, narrow and printed.
//
//   node reports_test.mjs CHROMIUM SCREENSHOTS|"" PAGE...
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { chromium } from "playwright-core";

const [browserPath, shots, ...files] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const looks = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 840 } },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 840 } },
  { name: "narrow", colorScheme: "light", viewport: { width: 360, height: 740 } },
  { name: "print", colorScheme: "light", media: "print", viewport: { width: 718, height: 1000 } }, // A4 less its margins
];

let failed = 0;
async function check(name, fn) {
  try {
    await fn();
    console.log(`ok    ${name}`);
  } catch (e) {
    failed++;
    console.log(`FAIL  ${name}\n      ${String(e?.stack ?? e).split("\n").slice(0, 8).join("\n      ")}`);
  }
}

/** In the page: takes out table rows that look like one before them, each element of them: measuring contrast takes
 * 4 ms for an element, and most are numbers in such rows. */
function oneOfEachRow() {
  for (const body of document.querySelectorAll("tbody")) {
    const seen = new Set();
    for (const row of [...body.rows]) {
      const look = [row, ...row.querySelectorAll("*")].map((e) => {
        const s = getComputedStyle(e);
        return [e.tagName, s.color, s.backgroundColor, s.backgroundImage, s.opacity, s.fontSize, s.fontWeight].join();
      }).join("|");
      if (seen.has(look)) row.remove();
      seen.add(look);
    }
  }
}

/** In the page: what is wider than the screen, labels of plots that touch or leave their plot. */
function layout() {
  const bad = [];
  if (document.documentElement.scrollWidth > innerWidth) bad.push(`${document.documentElement.scrollWidth} wide`);
  for (const svg of document.querySelectorAll("svg")) {
    const title = svg.querySelector("title").textContent, frame = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (const [i, [text, r]] of labels.entries()) {
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 1 || r.bottom > frame.bottom + 1) bad.push(`${title}: "${text}" leaves the plot`);
      for (const [other, q] of labels.slice(i + 1))
        if (Math.min(r.right, q.right) - Math.max(r.left, q.left) > 1 && Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 3) bad.push(`${title}: "${text}" on "${other}"`);
    }
  }
  return bad;
}

async function violations(page, options) {
  const r = await page.evaluate((o) => globalThis.axe.run(document, { resultTypes: ["violations"], ...o }), options);
  return r.violations.map((v) => `${v.impact} ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | ")}`);
}

const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--disable-component-update", "--disable-background-networking"] });
const page = await browser.newPage();
let url = "", bad = [];
page.on("console", (m) => bad.push(`${m.type()}: ${m.text()}`));
page.on("pageerror", (e) => bad.push(`exception: ${e.message}`));
page.on("request", (r) => r.url() !== url && bad.push(`request to ${r.url()}`));
for (const file of files) {
  const base = path.basename(file, ".html");
  url = pathToFileURL(file).href;
  for (const { name, viewport, ...media } of looks) {
    await page.goto("about:blank");
    bad = [];
    await page.setViewportSize(viewport);
    await page.emulateMedia({ media: "screen", ...media });
    await page.goto(url);
    await check(`${base}, ${name}: nothing overlaps, nothing leaves the screen`, async () => {
      await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
      assert.deepEqual(await page.evaluate(layout), []);
      assert.deepEqual(bad, []);
    });
    if (media.media !== "print")
      await check(`${base}, ${name}: titles of plots are whole`, async () => {
        const seen = await page.evaluate(() => [...document.querySelectorAll("figure")].map((f) => {
          const caption = f.querySelector("figcaption"), title = f.querySelector("svg .nb-t"), r = caption.getBoundingClientRect();
          return [caption.textContent === f.querySelector("svg title").textContent, r.height > 0 && r.right <= innerWidth, getComputedStyle(title).visibility === "visible"];
        }));
        assert.ok(seen.every(([same, above, inside]) => same && above === (name === "narrow") && inside !== above), JSON.stringify(seen));
      });
    if (shots) await page.screenshot({ path: path.join(shots, `${base}-${name}.png`), fullPage: true });
    await check(`${base}, ${name}: follows the reader's scheme`, async () => {
      const light = (selector) => page.evaluate((s) => {
        const e = document.querySelector(s);
        return e ? getComputedStyle(e).backgroundColor.match(/\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) > 384 : null;
      }, selector);
      const want = name !== "dark";
      assert.equal(await light("body"), want);
      assert.equal(await light("svg"), want);
    });
    if (name === "dark" || name === "narrow") // both schemes; what scrolls can be reached
      await check(`${base}, ${name}: accessible`, async () => {
        await page.evaluate(`(()=>{const module=undefined,define=undefined;${axe}})()`);
        assert.deepEqual(await violations(page, { rules: { "color-contrast": { enabled: false } } }), []);
        await page.evaluate(oneOfEachRow);
        assert.deepEqual(await violations(page, { runOnly: ["color-contrast"] }), []);
      });
  }
}
await browser.close();
if (failed) {
  console.log(`${failed} failed`);
  process.exit(1);
}
