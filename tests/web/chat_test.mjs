// chat_test.mjs - the chat in headless Chromium: against a real `nibble serve`, then against mock.mjs for what
// models may write, for errors, and for a browser that keeps nothing.
//
//   node chat_test.mjs NIBBLE MODEL CHROMIUM [SCREENSHOTS]
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { accessible, check, end, open, processorTime, shot, startServer, usage } from "./harness.mjs";
import { DOCUMENT, HOSTILE, longAnswer } from "./hostile.mjs";
import { serve as mock } from "./mock.mjs";

/** Sends a message and waits for the end of its answer; it is answer number n of the conversation, from 1. */
async function ask(page, text, n = 1) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
  await ended(page, n);
}
const ended = (page, n) => page.waitForFunction((k) => document.querySelectorAll(".answer:not(.writing) .usage div:last-child, .answer:not(.writing) .error").length === k, n);
const titles = (page) => page.locator(".talk-title").allInnerTexts();
/** Waits until the list has these titles, or so many: it is read anew a moment after what changed it. */
const listed = (page, want) => page.waitForFunction((w) => {
  const all = [...document.querySelectorAll(".talk-title")].map((b) => b.textContent);
  return typeof w === "number" ? all.length === w : JSON.stringify(all) === JSON.stringify(w);
}, want);
/** Waits until the browser keeps n conversations, each with the end of its last answer: what is reloaded is there. */
const kept = (page, n) => page.waitForFunction(async (want) => {
  const done = (r) => new Promise((resolve, reject) => Object.assign(r, { onsuccess: () => resolve(r.result), onerror: () => reject(r.error) }));
  const db = await done(indexedDB.open("nibble", 1));
  const all = await done(db.transaction(["conversations"]).objectStore("conversations").getAll());
  db.close();
  return all.length === want && all.every((c) => c.turns.at(-1)?.answer?.figures.finish_reason);
}, n);
/** Waits until the clipboard has a text, which the page writes aside. */
const copied = (page, want) => page.waitForFunction(async (w) => (await navigator.clipboard.readText()) === w, want);
const focused = (page, id) => page.waitForFunction((i) => document.activeElement?.id === i, id);
const press = (page, name, last = false) => (last ? page.getByRole("button", { name, exact: true }).last() : page.getByRole("button", { name, exact: true }).first()).click();
const BOAT = `Tell me a story about a brave little boat. ${"The boat was red and blue, and it lived near the lake with a duck. ".repeat(6).trim()}`; // more than a block of the cache
const TITLE = BOAT.slice(0, 60).trim();
const pieces = (text, n = 4) => text.match(new RegExp(`[^]{1,${n}}`, "gu"));

async function realServer() {
  const server = await startServer();
  const { page, bad, context, close } = await open(server.url, { permissions: ["clipboard-read", "clipboard-write"] });
  const bodies = [];
  await page.route("**/v1/**", (r) => (bodies.push(r.request().postDataJSON()), r.continue()));
  try {
    await check("the second turn sends the first and finds it in the cache", async () => {
      await page.waitForFunction(() => document.querySelector("#log .empty")?.textContent?.includes("million parameters"));
      await page.fill("#set-max_tokens", "80");
      await page.fill("#set-seed", "3");
      await ask(page, BOAT);
      await ask(page, "What did the boat do then?", 2);
      const [first] = await page.locator(".answer .text").allInnerTexts();
      const { messages } = bodies[1];
      assert.deepEqual(messages.map((m) => m.role), ["user", "assistant", "user"]);
      assert.equal(messages[1].content.replace(/\s+/g, " ").trim(), first.replace(/\s+/g, " ").trim());
      const cached = Number(/cached\s+(\d+)/.exec(await usage(page))[1]);
      assert.ok(cached >= 64, `${cached} cached tokens`);
      assert.match(await usage(page), /speed\s+[\d.,]+ tokens\/s/);
    });
    await check("regenerate asks for the last answer again, with the same messages", async () => {
      assert.equal(await page.locator(".regenerate:visible").count(), 1);
      await page.fill("#set-max_tokens", "3");
      await page.locator(".regenerate:visible").click();
      await page.locator(".answer .usage").last().filter({ hasText: "generated3 tokens" }).waitFor();
      assert.deepEqual(bodies[2].messages, bodies[1].messages);
      assert.equal(await page.locator(".answer").count(), 2);
      await page.fill("#set-max_tokens", "80");
    });
    await check("copy a message, an answer", async () => {
      await press(page, "Copy message");
      await copied(page, BOAT);
      await press(page, "Copy answer");
      await copied(page, bodies[1].messages[1].content);
    });
    await check("copying works without navigator.clipboard, as over plain HTTP", async () => {
      await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true }));
      await press(page, "Copy message", true);
      await page.evaluate(() => delete navigator.clipboard);
      await copied(page, "What did the boat do then?");
    });
    await check("a message is edited with the keyboard and sent again; what followed goes, and it says so", async () => {
      await page.getByRole("button", { name: "Edit message" }).first().press("Enter");
      assert.match(await page.locator(".editor .hint").innerText(), /removes the later message/);
      await page.keyboard.press("Escape");
      assert.equal(await page.locator(".editor").count(), 0);
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Copy");
      await page.getByRole("button", { name: "Edit message" }).first().press("Enter");
      await page.keyboard.press("Control+A");
      await page.keyboard.type("Tell me a story about a cat.");
      await page.keyboard.press("Enter");
      await ended(page, 1);
      assert.deepEqual(bodies.at(-1).messages, [{ role: "user", content: "Tell me a story about a cat." }]);
      assert.equal(await page.locator(".turn").count(), 1);
    });
    await check("conversations are listed, and come back after a reload", async () => {
      await press(page, "New conversation");
      await ask(page, "Tell me a story about a fox.");
      await listed(page, ["Tell me a story about a fox.", TITLE]);
      const text = await page.locator(".answer .text").innerText();
      const figures = await usage(page);
      await kept(page, 2);
      await page.reload();
      await ended(page, 1);
      assert.equal(await page.locator(".answer .text").innerText(), text);
      assert.equal(await usage(page), figures);
      await press(page, TITLE);
      await page.waitForFunction(() => document.querySelector(".user")?.textContent === "Tell me a story about a cat.");
      await ended(page, 1); // loaded
      await ask(page, "And then?", 2); // it goes on
      assert.equal(bodies.at(-1).messages.length, 3);
      await shot(page, "chat-list");
    });
    await check("another tab sees what changes", async () => {
      const other = await context.newPage();
      await other.goto(server.url);
      await listed(other, 2);
      await press(page, `Rename ${TITLE}`);
      await page.keyboard.press("Control+A");
      await page.keyboard.type("The cat");
      await page.keyboard.press("Enter");
      await other.waitForFunction(() => [...document.querySelectorAll(".talk-title")].some((b) => b.textContent === "The cat"));
      await other.close();
      await listed(page, ["The cat", "Tell me a story about a fox."]);
    });
    await check("conversations are exported as JSON", async () => {
      const file = async (name) => {
        const [download] = await Promise.all([page.waitForEvent("download"), press(page, name)]);
        return [download.suggestedFilename(), JSON.parse(readFileSync(await download.path(), "utf8"))];
      };
      const [name, one] = await file("Export The cat");
      assert.equal(name, "The-cat.json");
      assert.equal(one.format, "nibble-conversations");
      const [{ turns }] = one.conversations;
      assert.equal(turns[0].prompt, "Tell me a story about a cat.");
      assert.equal(turns[0].answer.content, bodies.at(-1).messages[1].content);
      assert.ok(turns[1].answer.figures.completion_tokens > 0);
      assert.equal((await file("Export all conversations"))[1].conversations.length, 2);
    });
    await check("an answer is written on while another conversation is on the screen", async () => {
      await page.unroute("**/v1/**");
      await page.route("**/v1/chat/**", (r) => r.continue({ postData: JSON.stringify({ ...r.request().postDataJSON(), ignore_eos: true }) }));
      await page.fill("#set-max_tokens", "3900"); // it must not end by itself, however slow the browser is
      await press(page, "New conversation");
      await page.fill("#prompt", "A long one");
      await page.press("#prompt", "Enter");
      await page.waitForSelector(".answer.writing");
      await press(page, "The cat");
      await page.waitForFunction(() => document.querySelectorAll(".turn").length === 2);
      await page.waitForSelector(".talks .busy");
      assert.equal(await page.locator(".stop").isHidden(), true);
      await page.fill("#set-max_tokens", "8");
      await ask(page, "Meanwhile", 3);
      await press(page, "A long one");
      await page.locator("button.stop").click();
      await ended(page, 1);
      assert.match(await usage(page), /stopped by you/);
      await page.waitForFunction(() => !document.querySelector(".talks .busy")); // the list is read anew, a moment later
    });
    await check("conversations are deleted, after a question", async () => {
      let question = "";
      page.once("dialog", (d) => ((question = d.message()), d.dismiss()));
      await press(page, "Delete A long one");
      assert.match(question, /A long one/);
      await listed(page, 3);
      page.on("dialog", (d) => d.accept());
      await press(page, "Delete A long one");
      await listed(page, 2);
      assert.equal(await page.locator(".turn").count(), 0);
      await press(page, "Delete all conversations");
      await listed(page, 0);
      await page.reload();
      await page.waitForSelector(".live[data-state=ok]");
      assert.deepEqual(await titles(page), []);
    });
    await check("a text is continued, and continued again", async () => {
      await page.check("#mode-text");
      await page.fill("#set-max_tokens", "12");
      await ask(page, "Once upon a time");
      const text = await page.locator(".answer .text").innerText();
      assert.match(text, /^Once upon a time/);
      await press(page, "Go on from here");
      await ended(page, 2);
      assert.ok((await page.locator(".answer .text").last().innerText()).startsWith(text));
    });
    await check("a wrong setting in the closed panel is shown, and nothing is sent", async () => {
      await page.fill("#set-temperature", "99");
      await page.fill("#set-top_k", "1.5");
      await page.locator(".settings summary").click();
      assert.equal(await page.locator("#set-temperature").isVisible(), false);
      assert.equal(await page.locator(".settings summary").innerText(), "Sampling: 2 invalid");
      let n = 0;
      page.on("request", (r) => (n += r.url().includes("/v1/")));
      await page.fill("#prompt", "x");
      await page.press("#prompt", "Enter");
      await page.locator("#prompt-error", { hasText: "Temperature is 99: expected 0 to 2." }).waitFor();
      assert.equal(await page.evaluate(() => document.activeElement?.id), "set-temperature");
      assert.match(await page.locator("#hint-top_k").innerText(), /Top k is 1.5: expected a whole number, 0 to/);
      assert.equal(await page.inputValue("#prompt"), "x");
      await page.reload(); // they are kept, and still marked
      await page.locator(".settings summary", { hasText: "Sampling: 2 invalid" }).waitFor();
      assert.equal(n, 0);
      await page.fill("#set-temperature", "0.33");
      await page.fill("#set-top_k", "");
      await ask(page, "x", 3);
      assert.equal(await page.locator("#prompt-error").isHidden(), true);
    });
    await check("no error, and no request to elsewhere", () => assert.deepEqual(bad, []));
  } finally {
    await close();
    server.stop();
  }
}

/** In the page: counts drawn answers, and the longest time in which the page could not react. */
function watch() {
  globalThis.seen = { draws: [], longest: 0, ran: 0, made: 0 };
  const make = document.createElement;
  document.createElement = function (...a) {
    globalThis.seen.made++;
    return make.apply(this, a);
  };
  globalThis.boom = () => globalThis.seen.ran++;
  addEventListener("grown", () => globalThis.seen.draws.push(performance.now()), true);
  let last = performance.now();
  setInterval(() => {
    globalThis.seen.longest = Math.max(globalThis.seen.longest, performance.now() - last);
    last = performance.now();
  }, 5);
}
const seen = (page) => page.evaluate(() => globalThis.seen);
/** The page was never busy for so long at a time: by the clock, or else by the processor, of which the longest time is
 * at most all that was used. */
const reacts = (limit, longest, used) => assert.ok(longest < 1000 * limit || used < limit, `${Math.round(longest)} ms without reacting, ${used.toFixed(1)} s of a processor`);

/** Elements and attributes of the answers that Markdown does not make. */
const strange = (page) =>
  page.evaluate(() => {
    const tags = "ARTICLE DIV P H3 H4 H5 H6 UL OL LI BLOCKQUOTE TABLE THEAD TBODY TR TH TD EM STRONG S A CODE PRE BR HR SPAN BUTTON DETAILS SUMMARY DL DT DD".split(" ");
    const attributes = "class dir href title target rel start type aria-label tabindex role hidden".split(" ");
    const out = new Set();
    for (const el of document.querySelectorAll(".answer *")) {
      if (!tags.includes(el.tagName)) out.add(el.tagName);
      for (const a of el.attributes) if (!attributes.includes(a.name)) out.add(`${el.tagName} ${a.name}`);
      if (el.tagName === "A" && (!/^(https?|mailto):$/.test(el.protocol) || el.rel !== "noopener noreferrer nofollow" || el.target !== "_blank")) out.add(el.outerHTML.slice(0, 100));
    }
    return [...out];
  });

async function markdown(server) {
  const { page, bad, close } = await open(server.url, { init: watch, permissions: ["clipboard-read", "clipboard-write"] });
  await check("Markdown: elements, links, code to copy; images are not loaded", async () => {
    server.state.answer = () => pieces(DOCUMENT);
    await ask(page, "all of it");
    const text = page.locator(".answer .md");
    for (const [selector, want] of [["h3", "A heading"], ["strong", "bold"], ["em", "slanted"], ["s", "gone"], ["p code", "code"], ["ol > li:first-child", "one"], ["ol ul li:last-child", "more"], ["blockquote", "a quote"], ["th.center", "coffee"], ["td.right", "1"], [".code-head span", "python"]])
      assert.equal((await text.locator(selector).first().innerText()).trim(), want, selector);
    assert.deepEqual(await text.locator("a").evaluateAll((all) => all.map((a) => [a.textContent, a.href])), [["link", "https://example.com/a"], ["https://example.com/b?c=1", "https://example.com/b?c=1"], ["image: a picture", "https://example.com/x.png"]]);
    assert.equal(await text.locator("hr").count(), 1);
    await press(page, "Copy code");
    await page.waitForFunction(async () => /^def f\(x\):\n {4}return x.*long \n$/.test(await navigator.clipboard.readText()));
    assert.deepEqual(await strange(page), []);
    await shot(page, "chat-markdown");
  });
  await check("what streams in pieces ends as what comes whole", async () => {
    const html = async (n) => {
      server.state.answer = () => pieces(DOCUMENT + longAnswer(2000), n);
      await press(page, "New conversation");
      await ask(page, `in pieces of ${n}`);
      return page.locator(".answer .md").evaluate((e) => e.innerHTML);
    };
    const whole = await html(1e6);
    for (const n of [1, 7]) assert.ok((await html(n)) === whole, `pieces of ${n} differ`);
    await kept(page, 4);
    await page.reload();
    await ended(page, 1);
    assert.ok((await page.locator(".answer .md").evaluate((e) => e.innerHTML)) === whole, "restored");
  });
  await check("Markdown in dark, light and 360 pixels: axe finds nothing serious, nothing sticks out", async () => {
    for (const theme of ["dark", "light"]) {
      await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
      await accessible(page, theme);
    }
    await page.setViewportSize({ width: 360, height: 740 });
    await page.reload();
    await ended(page, 1);
    await page.locator(".list summary").click();
    for (const selector of [".list", ".answer", ".composer", "#prompt"]) {
      const [left, right] = await page.locator(selector).evaluate((e) => [e.getBoundingClientRect().left, e.getBoundingClientRect().right]);
      assert.ok(left >= 0 && right <= 360, `${selector}: ${left} to ${right}`);
    }
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
    assert.equal(await page.locator("#log").evaluate((e) => e.scrollWidth - e.clientWidth), 0);
    assert.ok((await page.locator("#log").evaluate((e) => e.clientHeight)) > 200, "the open list leaves room");
    await shot(page, "chat-markdown-phone");
    await page.locator(".talk-title").last().click();
    await page.waitForFunction(() => !document.querySelector(".list").open && document.querySelector(".user")?.textContent === "all of it");
  });
  await check("no error, no request to elsewhere", () => assert.deepEqual(bad, []));
  await close();
}

async function hostile(server) {
  const { page, bad, close } = await open(server.url, { init: watch });
  page.on("dialog", (d) => (bad.push(`dialog: ${d.message()}`), d.dismiss()));
  const used = await processorTime(page);
  for (const [name, text] of Object.entries(HOSTILE))
    await check(`hostile: ${name}`, async () => {
      server.state.answer = () => pieces(text, Math.max(64, Math.ceil(text.length / 500)));
      await press(page, "New conversation");
      await page.evaluate(() => Object.assign(globalThis.seen, { longest: 0 }));
      const before = await used();
      await ask(page, name);
      const processor = (await used()).TaskDuration - before.TaskDuration;
      const { longest, ran } = await seen(page);
      assert.equal(ran, 0);
      assert.deepEqual(await strange(page), []);
      const shown = await page.locator(".answer .md").evaluate((e) => e.textContent);
      const word = /\w+\s*$/.exec(text)?.[0].trim();
      if (word) assert.ok(shown.trimEnd().endsWith(word), `its end is not shown: ${JSON.stringify(shown.slice(-40))}`);
      for (const c of "`[*wab1") { // what is no mark is shown, and marks that mean nothing are too
        const [there, here] = [text, shown].map((t) => t.split(c).length - 1);
        if (there > 20_000 && /\w|`|\[/.test(c)) assert.ok(here > there * 0.3, `${here} of ${there} times ${c}`);
      }
      console.log(`      ${Math.round(longest)} ms at most without reacting, ${processor.toFixed(1)} s of a processor`);
      reacts(5, longest, processor);
    });
  await check("hostile: no error, no dialog, no request to elsewhere", () => assert.deepEqual(bad, []));
  await close();
}

async function long(server) {
  const { page, close } = await open(server.url, { init: watch });
  await check("30,000 tokens stay smooth", async () => {
    server.state.answer = () => pieces(longAnswer(30_000));
    const used = await processorTime(page);
    await ask(page, "a long answer");
    const metrics = await used();
    const { draws, longest, made } = await seen(page);
    const elements = await page.locator(".answer .md *").count();
    console.log(`      ${((draws.at(-1) - draws[0]) / 1000).toFixed(1)} s, ${draws.length} draws, ${made} elements made for ${elements}, script ${metrics.ScriptDuration.toFixed(1)} s, layout ${(metrics.LayoutDuration + metrics.RecalcStyleDuration).toFixed(1)} s, all ${metrics.TaskDuration.toFixed(1)} s of a processor, ${Math.round(longest)} ms at most without reacting`);
    reacts(2, longest, metrics.TaskDuration);
    assert.ok(made < 1.5 * elements + 40 * draws.length, "blocks that were finished are made again");
    assert.ok(await page.locator("#log").evaluate((e) => e.scrollTop + e.clientHeight > e.scrollHeight - 40), "the end is in view");
  });
  await close();
}

async function errors(server) {
  const { page, bad, close } = await open(server.url, { allowed: [/status of (503|400|401)|ERR_FAILED/] });
  const again = () => page.locator(".failed").getByRole("button", { name: "Try again" }).click();
  const message = () => page.locator(".answer .error").innerText();
  /** Asks again, and waits for the end of answer number n: until then nothing else can be asked. */
  const fine = async (n) => {
    await again();
    await ended(page, n);
    await page.locator(".answer .md", { hasText: "Fine." }).nth(n - 1).waitFor();
  };
  server.state.answer = () => ["Fine."];
  const fails = async (fail, want, n = 1) => {
    server.state.fail = fail;
    await ask(page, "Hello", n);
    assert.match(await message(), want);
    assert.equal(await page.locator(".answer .error").getAttribute("role"), "alert");
    await fine(n);
    assert.equal(await page.locator(".error:visible").count(), 0);
  };
  await check("503 is said in words, and tried again", () => fails({ status: 503, message: "the queue is full", headers: { "Retry-After": "7" } }, /too busy or is stopping: the queue is full\. Try again in 7 s/));
  await check("400 is said in words, and tried again", () => fails({ status: 400, message: "the prompt has 5000 tokens, expected at most 4096" }, /refused the request: the prompt has 5000 tokens, expected at most 4096/, 2));
  await check("a stream that breaks off is said in words; what came is kept", async () => {
    await fails({ cut: true, message: "Half an ans" }, /ended before the answer did/, 3);
  });
  await check("a server that cannot be reached is said in words", async () => {
    await page.route("**/v1/**", (r) => r.abort());
    await ask(page, "Hello", 4);
    assert.match(await message(), /cannot be reached/);
    await page.unroute("**/v1/**");
    await fine(4);
  });
  await check("401 asks for a key, and the message goes again with it", async () => {
    server.state.fail = { status: 401, message: "the API key is missing or wrong" };
    await ask(page, "Hello", 5);
    assert.match(await message(), /wants an API key/);
    await focused(page, "key");
    await page.keyboard.type("sesame");
    await page.keyboard.press("Enter");
    await page.locator(".answer .md", { hasText: "Fine." }).nth(4).waitFor();
    await ended(page, 5);
    server.state.fail = { status: 401, message: "the API key is missing or wrong" };
    await ask(page, "Hello", 6);
    await page.locator("#key-label", { hasText: /^The server refused this API key$/ }).waitFor();
  });
  await check("reasoning can be unfolded, and is not sent back", async () => {
    server.state.answer = () => [{ reasoning_content: "First <b>this</b>,\n" }, { reasoning: "then that." }, "Done."];
    await press(page, "New conversation");
    await ask(page, "Think");
    assert.equal(await page.locator(".reasoning .text").isVisible(), false);
    await page.locator(".reasoning summary").click();
    assert.equal((await page.locator(".reasoning .text").innerText()).trim(), "First <b>this</b>,\nthen that.");
    await ask(page, "More", 2);
    assert.deepEqual(server.state.bodies.at(-1).messages.map((m) => m.content), ["Think", "Done.", "More"]);
    assert.deepEqual(bad, []);
  });
  await close();
}

/** In the page: the server's configuration, changed. */
function configured(change) {
  const real = fetch;
  globalThis.fetch = async (url, init) => {
    const r = await real(url, init);
    if (!String(url).endsWith("api/config")) return r;
    const c = await r.json();
    return new Response(JSON.stringify({ ...c, ...change, engine: { ...c.engine, ...change.engine } }));
  };
}

async function keeping(server) {
  server.state.answer = () => pieces(longAnswer(20_000), 1000);
  await check("a full browser is said in words, and the conversation stays until the page is closed", async () => {
    const { page, close } = await open(server.url);
    const client = await page.context().newCDPSession(page);
    const origin = new URL(server.url).origin;
    await client.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 1000 });
    await ask(page, "Too long to keep");
    await page.locator(".list .error", { hasText: "storage that the browser gives this page is full" }).waitFor();
    await press(page, "New conversation");
    await press(page, "Too long to keep");
    await ended(page, 1);
    await client.send("Storage.overrideQuotaForOrigin", { origin });
    server.state.answer = () => ["Fine."];
    await ask(page, "And now", 2);
    await page.locator(".list .error").waitFor({ state: "hidden" });
    await page.reload();
    await ended(page, 2);
    await close();
  });
  await check("the 501st conversation is not kept, and nothing is lost for it", async () => {
    const { page, close } = await open(server.url);
    await ask(page, "Number one");
    await page.evaluate(async () => {
      const db = await new Promise((done) => (indexedDB.open("nibble", 1).onsuccess = (e) => done(e.target.result)));
      const tx = db.transaction(["heads"], "readwrite");
      for (let i = 0; i < 499; i++) tx.objectStore("heads").put({ id: `x${i}`, title: `<i>${i}</i>`, created: i, updated: i });
      await new Promise((done) => (tx.oncomplete = done));
      db.close();
    });
    await press(page, "New conversation");
    await ask(page, "One too many");
    await page.locator(".list .error", { hasText: "500 conversations are kept" }).waitFor();
    await listed(page, 501);
    assert.equal(await page.locator(".talks i").count(), 0);
    await close();
  });
  await check("without IndexedDB the chat works, and says that nothing is kept", async () => {
    const { page, bad, close } = await open(server.url, { init: () => Object.defineProperty(globalThis, "indexedDB", { value: { open: () => { throw new Error("not allowed"); } } }) });
    await ask(page, "Hello");
    await page.locator(".list .error", { hasText: "lost when the page is closed: not allowed" }).waitFor();
    await press(page, "New conversation");
    await ask(page, "Hello again");
    await press(page, "Hello");
    await page.waitForFunction(() => document.querySelector(".user")?.textContent === "Hello");
    assert.deepEqual(bad, []);
    await close();
  });
  await check("suggestions of a model of common size are no stories", async () => {
    const { page, close } = await open(server.url, { init: configured, arg: { engine: { n_param: 16e9 } } });
    await page.waitForFunction(() => document.querySelectorAll(".suggestion").length === 4);
    assert.doesNotMatch(await page.locator("#log .empty").innerText(), /story|stories/i);
    await page.locator(".suggestion").first().click();
    await ended(page, 1);
    await close();
  });
  await check("a model without a chat template continues texts, one without a tokenizer says so", async () => {
    const { page, close } = await open(server.url, { init: configured, arg: { has_template: false } });
    await page.waitForSelector("#mode-chat:disabled");
    const n = server.state.requests.length;
    await ask(page, "Once");
    assert.ok(server.state.requests.slice(n).includes("/v1/completions"));
    await press(page, "New conversation");
    assert.equal(await page.isChecked("#mode-text"), true);
    await close();
    const other = await open(server.url, { init: configured, arg: { has_text: false } });
    await other.page.locator("#log .empty", { hasText: "without a tokenizer" }).waitFor();
    assert.equal(await other.page.locator(".composer .primary").isDisabled(), true);
    await other.close();
  });
}

await realServer();
const files = await startServer();
const server = await mock({ files: files.url, speed: 2 });
await markdown(server);
await hostile(server);
await long(server);
await errors(server);
await keeping(server);
server.close();
files.stop();
await end();
