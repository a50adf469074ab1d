// page_test.mjs - the page in headless Chromium: against a real `nibble serve`, then, for what a real
// one reaches with difficulty, against mock.mjs.
//
//   node page_test.mjs NIBBLE MODEL CHROMIUM [SCREENSHOTS]
import assert from "node:assert/strict";
import http from "node:http";
import { gunzipSync } from "node:zlib";

import { accessible, check, complete, end, frames, open, shot, startServer, usage } from "./harness.mjs";
import { serve as mock } from "./mock.mjs";

const number = (text) => Number(text.replace(/\u2212/g, "-"));

// WebGL of a machine without a GPU may say that it is slow.
const GPU_NOISE = /GPU stall|GL Driver|software|swiftshader|WebGL/i;

async function realServer() {
  const server = await startServer();
  const { page, bad, close } = await open(server.url, { allowed: [GPU_NOISE] });
  try {
    await check("the document comes with its policy, and again as 304", async () => {
      const r = await fetch(server.url);
      assert.match(r.headers.get("content-type"), /^text\/html/);
      assert.match(r.headers.get("content-security-policy"), /script-src 'self'/);
      assert.equal((await fetch(server.url, { headers: { "If-None-Match": r.headers.get("etag") } })).status, 304);
      assert.match((await (await fetch(`${server.url}THIRD-PARTY.txt`)).text()), /three .*MIT/s);
    });
    await check("compressed for those who take it", async () => {
      const coding = (accept) => new Promise((resolve, reject) => {
        http.get(`${server.url}scene.js`, { headers: accept === null ? {} : { "Accept-Encoding": accept } }, (r) => {
          const parts = [];
          r.on("data", (d) => parts.push(d));
          r.on("end", () => resolve([r.headers["content-encoding"] ?? "", Buffer.concat(parts)]));
        }).on("error", reject);
      });
      const [none, plain] = await coding(null);
      const [gzip, packed] = await coding("br, GZIP;q=0.5");
      assert.deepEqual([none, gzip], ["", "gzip"]);
      assert.ok(gunzipSync(packed).equals(plain));
      for (const refused of ["gzip;q=0", "gzip; q=0.00", "br", "gzipped"]) assert.equal((await coding(refused))[0], "", refused);
    });
    await check("many questions at once are answered or refused, also when clients leave", async () => {
      const ask = (k) => {
        const abort = new AbortController();
        if (k % 5 === 4) setTimeout(() => abort.abort(), k % 3);
        return fetch(`${server.url}api/cache`, { signal: abort.signal }).then(async (r) => (await r.text(), r.status), () => 0);
      };
      const got = await Promise.all(Array.from({ length: 100 }, (_, k) => ask(k)));
      assert.ok(got.includes(200) && got.every((s) => [0, 200, 503].includes(s)), got.join(" "));
      while ((await fetch(`${server.url}api/cache`)).status !== 200) // what clients left is still being computed
        await new Promise((done) => setTimeout(done, 20));
    });
    await check("before anything ran the block view offers to run something", async () => {
      assert.equal((await fetch(`${server.url}api/block`)).status, 404);
      assert.equal((await fetch(`${server.url}api/block?layer=x`)).status, 400);
    });
    await check("a chat streams and tells its usage", async () => {
      await page.fill("#set-max_tokens", "24");
      await page.fill("#set-seed", "7");
      await page.fill("#set-temperature", "0");
      await page.fill("#prompt", "Tell me a story about a cat.");
      await page.press("#prompt", "Enter");
      await page.waitForSelector(".answer .usage div");
      const text = await page.locator(".answer .text").innerText();
      assert.ok(text.length > 20, text);
      assert.match(await usage(page), /prompt\s+\d+ tokens\s+cached\s+\d+\s+generated\s+24 tokens\s+speed\s+[\d.,]+ tokens\/s\s+first token\s+.*ended\s+length limit/s);
      const again = await (await fetch(`${server.url}v1/chat/completions`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ messages: [{ role: "user", content: "Tell me a story about a cat." }], max_tokens: 24, temperature: 0, seed: 7 }) })).json();
      assert.equal(text.trim(), again.choices[0].message.content.trim());
      await shot(page, "chat-light");
    });
    await check("stop ends the stream, and the server notices", async () => {
      // The text must not end by itself before the button is found, however slow the browser is.
      await page.route("**/v1/completions", (r) =>
        r.continue({ postData: JSON.stringify({ ...r.request().postDataJSON(), ignore_eos: true }) }));
      await page.check("#mode-text");
      await page.fill("#set-max_tokens", "3900");
      await page.fill("#set-temperature", "1");
      await page.fill("#prompt", "Once upon a time");
      await page.press("#prompt", "Enter");
      await page.waitForFunction(() => (document.querySelector(".answer .text")?.textContent ?? "").length > 60);
      await page.click(".stop");
      await page.waitForFunction(() => document.querySelector(".answer .usage")?.childElementCount > 0);
      assert.match(await usage(page), /prompt\s+5 tokens.*stopped by you/s);
      await page.unroute("**/v1/completions");
      for (let i = 0; ; i++) {
        const s = await (await fetch(`${server.url}api/stats`)).json();
        if (s.running === 0) break;
        assert.ok(i < 200, "the request still runs");
        await new Promise((r) => setTimeout(r, 50));
      }
    });
    await check("a setting out of range is pointed out, not sent", async () => {
      await page.fill("#set-top_p", "7");
      await page.fill("#prompt", "x");
      await page.press("#prompt", "Enter");
      await page.waitForSelector("#set-top_p[aria-invalid=true]");
      await page.fill("#set-top_p", "");
      assert.equal(await page.locator(".answer").count(), 1);
    });
    await check("the cache view tells what /api/cache and /api/stats tell", async () => {
      await complete(server.url, { prompt: "Once there was a little fox who lived near the lake. ".repeat(12), max_tokens: 2 });
      await page.click("#tab-cache");
      await page.waitForFunction(() => Number(document.querySelector(".legend li:nth-child(3) b")?.textContent) > 0);
      const c = await (await fetch(`${server.url}api/cache`)).json();
      assert.equal(c.state.length, c.n_block);
      const once = [...c.state].filter((x) => x === "1").length;
      await page.waitForFunction((n) => document.querySelector(".legend li:nth-child(3) b")?.textContent === n, String(once));
      const used = [...c.state].filter((x) => x !== ".").length;
      assert.equal(c.parent.length, used);
      assert.equal(c.keys.length, 8 * used);
      await page.waitForFunction((t) => document.querySelector(".tile")?.textContent?.includes(t), `${used} of ${c.n_block}`);
      assert.ok((await page.locator("[role=treeitem]").count()) >= 1);
      assert.ok((await page.locator(".bar").count()) >= 4);
      await page.waitForSelector(".u-over");
      await shot(page, "cache-light");
    });
    await check("the map is walked with the keyboard", async () => {
      await page.focus(".grid");
      await page.keyboard.press("Home");
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.inputValue("#block-no"), "1");
      assert.match(await page.locator(".facts").innerText(), /state/);
      await page.waitForFunction(() => document.querySelector("#say")?.textContent?.includes("Block 1: state"));
    });
    await check("the block view shows the numbers of /api/block", async () => {
      // A page that is nearly full: 5 tokens of the prompt, 54 of 55 generated ones are computed.
      await complete(server.url, { prompt: "Once upon a time", max_tokens: 55, ignore_eos: true, seed: 1 });
      await page.click("#tab-block");
      await page.waitForSelector(".side table");
      await page.selectOption("#block-layer", "3");
      await page.waitForFunction(() => document.querySelector("#block .view-head")?.textContent?.includes("Layer 3"));
      await page.fill("#block-value", "517");
      await page.waitForFunction(() => document.querySelector(".side > h3")?.textContent?.includes("rope key 5"));
      const a = await (await fetch(`${server.url}api/block?layer=3&tok=0`)).json();
      const cells = await page.locator(".side tbody tr").evaluateAll((rows) => rows.map((r) => [...r.children].map((c) => c.textContent)));
      const reads = cells.find((r) => r[0] === "reads as").slice(1).map(number);
      ["bf16", "fp8", "nvfp4"].forEach((d, i) => {
        const want = a.records.find((r) => r.dtype === d).decoded[517];
        assert.ok(Math.abs(reads[i] - want) <= 1e-5 * Math.abs(want), `${d}: ${reads[i]}, the server says ${want}`);
      });
      // The numbers are what the formats make of them: a code times its scale.
      const { segments: [latent, rope], decoded } = a.records.find((r) => r.dtype === "fp8");
      const code = latent.codes[7];
      const e = (code >> 3) & 15;
      const magnitude = e ? (1 + (code & 7) / 8) * 2 ** (e - 7) : ((code & 7) / 8) * 2 ** -6;
      assert.equal((code & 128 ? -1 : 1) * magnitude * latent.outer[0], decoded[7]);
      assert.equal(rope.fmt, "int8");
      assert.equal((rope.codes[5] > 127 ? rope.codes[5] - 256 : rope.codes[5]) * rope.outer[0], decoded[517]);
      await shot(page, "block-light");
    });
    await check("there is a 3D drawing, walked with the keyboard and the pointer", async () => {
      await page.waitForSelector(".stage canvas");
      await page.waitForSelector(".slab-label");
      assert.equal(await page.locator(".slab-label").count(), 3);
      await page.uncheck("#block-follow");
      await page.focus(".stage");
      await page.keyboard.press("Home");
      await page.keyboard.press("ArrowRight");
      assert.match(await page.locator(".side > h3").innerText(), /Token 0, latent 1$/);
      const box = await page.locator(".stage canvas").boundingBox();
      const seen = new Set();
      for (let y = 0.15; y < 0.95 && seen.size < 3; y += 0.05)
        for (const x of [0.35, 0.5, 0.65]) {
          await page.mouse.click(box.x + box.width * x, box.y + box.height * y);
          seen.add(await page.locator("#block output").innerText()); // the token, at once
        }
      assert.ok(seen.size >= 3, `the pointer picks no cells: ${[...seen].join("; ")}`);
      // The numbers follow when the server has answered.
      await page.waitForFunction(() => {
        const token = document.querySelector("#block output")?.textContent?.split(" ")[0];
        return document.querySelector(".side > h3")?.textContent?.startsWith(`Token ${token}, `);
      });
    });
    await check("light and dark", async () => {
      const bg = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await bg();
      await page.emulateMedia({ colorScheme: "dark" });
      await page.waitForFunction((c) => getComputedStyle(document.body).backgroundColor !== c, light);
      const dark = await bg();
      await page.click("#theme"); // light, whatever the system says
      assert.equal(await bg(), light);
      await page.click("#theme");
      assert.equal(await bg(), dark);
      await shot(page, "block-dark");
      await page.click("#tab-cache");
      await shot(page, "cache-dark");
      await page.click("#tab-chat");
      await shot(page, "chat-dark");
    });
    for (const tab of ["chat", "cache", "block"])
      for (const theme of ["dark", "light"])
        await check(`axe finds nothing serious: ${tab}, ${theme}`, async () => {
          await page.click(`#tab-${tab}`);
          await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
          await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
          await frames(page);
          await accessible(page, tab);
        });
    await check("tabs with the keyboard", async () => {
      await page.focus("#tab-block");
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "tab-chat");
      assert.equal(await page.locator("#chat").isVisible(), true);
      await page.keyboard.press("End");
      assert.equal(await page.locator("#block").isVisible(), true);
    });
    await check("no error, and no request to elsewhere", () => assert.deepEqual(bad, []));
  } finally {
    await close();
    server.stop();
  }
}

async function withKey() {
  const server = await startServer("--api-key", "sesame");
  const { page, bad, close } = await open(server.url, { allowed: [/401/] });
  try {
    await check("a key is asked for, kept in the tab, and used", async () => {
      await page.waitForSelector("#key-bar:not([hidden])");
      await page.fill("#key", "sesame");
      await page.press("#key", "Enter");
      await page.waitForSelector(".live[data-state=ok]");
      assert.equal(await page.evaluate(() => sessionStorage.getItem("nibble.key")), "sesame");
      assert.equal(await page.evaluate(() => localStorage.getItem("nibble.key")), null);
      await page.reload();
      await page.waitForSelector(".live[data-state=ok]");
      assert.deepEqual(bad, []);
    });
  } finally {
    await close();
    server.stop();
  }
}

async function invented(files) {
  const server = await mock({ files, nBlock: 100_000, speed: 2 });
  try {
    await check("a pool of 100,000 blocks", async () => {
      const { page, bad, close } = await open(server.url, { hash: "#cache" });
      await page.waitForFunction(() => document.querySelectorAll("[role=treeitem]").length > 20);
      await page.focus(".grid");
      await page.keyboard.press("End");
      assert.equal(await page.inputValue("#block-no"), "99999");
      await page.keyboard.press("Home");
      await page.locator("[role=treeitem]").first().focus();
      await page.keyboard.press("ArrowDown");
      assert.equal(await page.locator("[role=treeitem]").nth(1).getAttribute("aria-selected"), "true");
      assert.deepEqual(bad, []);
      await close();
    });
    await check("the settings reach the server", async () => {
      const { page, close } = await open(server.url);
      const want = { temperature: 0.3, top_p: 0.8, top_k: 12, min_p: 0.05, max_tokens: 9, seed: 42 };
      for (const [k, v] of Object.entries(want)) await page.fill(`#set-${k}`, String(v));
      await page.fill("#set-system", "Be brief.");
      await page.fill("#prompt", "Hello");
      await page.press("#prompt", "Enter");
      await page.waitForSelector(".answer .usage div");
      const { messages, stream, ...rest } = server.state.last;
      for (const [k, v] of Object.entries(want)) assert.equal(rest[k], v, k);
      assert.equal(stream, true);
      assert.deepEqual(messages, [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }]);
      await close();
    });
    await check("without WebGL the numbers are still there", async () => {
      const init = () => {
        const get = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
          return /webgl/.test(kind) ? null : get.call(this, kind, ...rest);
        };
      };
      const { page, close } = await open(server.url, { hash: "#block", init });
      await page.waitForFunction(() => document.querySelector(".stage")?.textContent?.includes("no WebGL"));
      await page.waitForSelector(".trace canvas");
      await page.waitForSelector(".side table");
      await page.focus(".stage");
      await page.keyboard.press("PageDown");
      assert.match(await page.locator(".side > h3").innerText(), /latent 16$/);
      await close();
    });
    await check("390 pixels wide: nothing sticks out", async () => {
      const { page, close } = await open(server.url, { viewport: { width: 390, height: 844 } });
      for (const [tab, there] of [["chat", "#prompt"], ["cache", "[role=treeitem]"], ["block", ".side table"]]) {
        await page.click(`#tab-${tab}`);
        await page.locator(there).first().waitFor();
        await frames(page);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= 390, `${tab} is ${wide} pixels wide`);
        await shot(page, `${tab}-phone`);
      }
      await close();
    });
  } finally {
    server.close();
  }
}

await realServer();
await withKey();
const files = await startServer();
await invented(files.url);
files.stop();
await end();
