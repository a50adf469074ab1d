// cache.ts - the live view of the cache: numbers, map of blocks, prefix tree, plots, memory.
import { ApiError, type CacheAnswer, type CacheRequest, type Config, get, type Stats } from "./api";
import { type Block, blocksHeld, blocksOf } from "./chains";
import { h, say, setText, table } from "./dom";
import { bytes, count, percent, seconds, times } from "./format";
import { Grid, type State, STATES, stateOf } from "./grid";
import { RECORD_NAMES, recordName } from "./page";
import { Plots } from "./plots";
import { Tree } from "./tree";

const TABLE_ROWS = 200;

export class CacheView {
  private readonly grid = new Grid();
  private readonly tree = new Tree();
  private readonly plots = new Plots();
  private readonly tiles = new Map<string, HTMLElement>();
  private readonly legend = new Map<State, HTMLElement>();
  private readonly details = h("dl", { class: "facts" });
  private readonly detailsTitle = h("h3", {}, "Block");
  private readonly number: HTMLInputElement;
  private readonly message = h("p", { class: "error", role: "alert", hidden: true });
  private readonly poolLine = h("p", { class: "muted" });
  private readonly memory = h("div", { class: "bars" });
  private readonly memoryLine = h("p", { class: "muted" });
  private readonly blockTable: HTMLDetailsElement;
  private readonly blockTableBox = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of blocks" });
  private readonly requestBox = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Running requests" });
  private active = false;
  private answer: CacheAnswer | null = null;
  private blocks = new Map<number, Block>();
  private cfg: Config | null = null;
  private last: Stats | null = null;
  private picked: number | null = null;
  private hovered: number | null = null;
  private timer = 0;
  private busy = false;

  constructor(root: HTMLElement) {
    this.number = h("input", { type: "number", id: "block-no", min: 0, step: 1, value: 0 });
    this.number.addEventListener("input", () => {
      const id = this.number.valueAsNumber;
      if (Number.isInteger(id) && id >= 0 && id < (this.answer?.n_block ?? 0)) this.grid.pick(id, true);
    });
    this.blockTable = h("details", { class: "numbers" }, h("summary", {}, "Blocks as a table"), this.blockTableBox);
    this.blockTable.addEventListener("toggle", () => this.tabulate());
    this.grid.onhover = (id) => {
      this.hovered = id;
      this.describe();
    };
    this.grid.onpick = (id, said) => {
      this.picked = id;
      this.hovered = null;
      this.grid.mark([]);
      this.number.value = String(id);
      this.describe();
      if (said) say(this.sentence(id));
    };
    this.tree.onpick = (blocks, label) => {
      this.grid.mark(blocks.map((b) => b.id));
      const first = blocks[0];
      if (first) {
        this.picked = first.id;
        this.number.value = String(first.id);
      }
      this.describe();
      say(`${label}, outlined in the map`);
    };
    const tile = (key: string, label: string): HTMLElement => {
      const value = h("dd", {}, "–");
      this.tiles.set(key, value);
      return h("div", { class: "tile" }, h("dt", {}, label), value);
    };
    const legend = (["h", "m", "1", "."] as State[]).map((s) => {
      const n = h("b", {}, "0");
      this.legend.set(s, n);
      return h("li", { title: STATES[s].text }, h("i", { class: `swatch ${STATES[s].key}` }), h("span", {}, STATES[s].label), n);
    });
    root.append(
      h("div", { class: "view-head" }, h("h2", {}, "Cache"), this.poolLine),
      this.message,
      h("dl", { class: "tiles" }, tile("use", "Blocks in use"), tile("hit", "Prefix hit rate"), tile("speed", "Tokens generated"), tile("queue", "Running, waiting"), tile("evicted", "Evictions, preemptions"), tile("up", "Uptime")),
      h(
        "div",
        { class: "cache-grid" },
        h(
          "section",
          { class: "panel map", "aria-labelledby": "map-title" },
          h("div", { class: "panel-head" }, h("h3", { id: "map-title" }, "Blocks of the pool"), h("ul", { class: "legend" }, ...legend)),
          this.grid.el,
          this.blockTable,
        ),
        h(
          "section",
          { class: "panel", "aria-label": "Details of a block" },
          h("div", { class: "panel-head" }, this.detailsTitle, h("label", { class: "inline", for: "block-no" }, "No.", this.number)),
          this.details,
        ),
        h("section", { class: "panel wide", "aria-labelledby": "tree-title" }, h("div", { class: "panel-head" }, h("h3", { id: "tree-title" }, "Prefix tree")), this.tree.el, h("details", { class: "numbers" }, h("summary", {}, "Running requests as a table"), this.requestBox)),
        h("section", { class: "panel wide", "aria-labelledby": "plots-title" }, h("h3", { id: "plots-title" }, "Last five minutes"), this.plots.el),
        h("section", { class: "panel wide", "aria-labelledby": "memory-title" }, h("h3", { id: "memory-title" }, "What these tokens would cost"), this.memoryLine, this.memory),
      ),
    );
    this.describe();
  }

  config(c: Config): void {
    this.cfg = c;
    setText(
      this.poolLine,
      `${count(c.engine.n_block)} blocks of ${c.engine.block_tok} tokens, ${bytes(c.engine.block_bytes)} each, as ${c.engine.kv_dtype}: ${bytes(c.engine.n_block * c.engine.block_bytes)} for ${count(c.engine.n_block * c.engine.block_tok)} tokens.`,
    );
    this.drawMemory();
  }

  stats(s: Stats): void {
    const set = (key: string, text: string): void => {
      const el = this.tiles.get(key);
      if (el) setText(el, text);
    };
    const used = s.blocks.all - s.blocks.free;
    set("use", `${count(used)} of ${count(s.blocks.all)}`);
    set("hit", percent(s.prefix_hits, s.prefix_queries));
    set("speed", count(s.generated_tokens));
    set("queue", `${s.running}, ${s.waiting}`);
    set("evicted", `${count(s.evicted)}, ${count(s.preempted)}`);
    set("up", seconds(Math.floor(s.uptime_s)));
    this.plots.push(s);
    this.last = s;
    if (this.active) this.drawMemory();
  }

  shown(on: boolean): void {
    this.active = on;
    this.plots.shown(on);
    if (on) this.refresh();
  }

  themed(): void {
    this.grid.draw();
    this.tree.draw();
    this.plots.themed();
  }

  refresh(): void {
    clearTimeout(this.timer);
    if (this.active && !document.hidden) void this.poll();
  }

  private async poll(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    let wait = 1000;
    try {
      const t0 = performance.now();
      this.update(await get<CacheAnswer>("api/cache", AbortSignal.timeout(10000)));
      this.message.hidden = true;
      wait = Math.max(1000, 4 * (performance.now() - t0)); // a slow answer is asked for less often
    } catch (e) {
      wait = 3000;
      if (e instanceof ApiError && e.status === 401) wait = 0;
      setText(this.message, `The cache cannot be shown: ${e instanceof Error ? e.message : String(e)}`);
      this.message.hidden = false;
    }
    this.busy = false;
    clearTimeout(this.timer);
    if (wait) this.timer = window.setTimeout(() => this.refresh(), wait);
  }

  private update(a: CacheAnswer): void {
    this.answer = a;
    this.blocks = blocksOf(a);
    this.number.max = String(Math.max(0, a.n_block - 1));
    const n: Record<State, number> = { ".": 0, h: 0, "1": 0, m: 0 };
    for (const c of a.state) n[stateOf(c)]++;
    for (const [s, el] of this.legend) setText(el, count(n[s]));
    this.grid.set(a.state);
    this.tree.set(this.blocks, a.requests);
    this.describe();
    this.tabulate();
    this.requestBox.replaceChildren(
      a.requests.length
        ? table(
            a.requests_left_out ? `${a.requests.length} of ${a.requests.length + a.requests_left_out} running requests` : "Running requests",
            ["request", "prompt tokens", "from the cache", "known", "computed", "blocks"],
            a.requests.map((r) => [r.id, count(r.prompt_tokens), count(r.cached), count(r.tokens), count(r.computed), count(r.n_blocks)]),
          )
        : h("p", { class: "muted" }, "No request is running."),
    );
  }

  private holdersOf(id: number): CacheRequest[] {
    return this.answer?.requests.filter((r) => blocksHeld(r).includes(id)) ?? [];
  }

  private facts(id: number): [string, string][] {
    const b = this.blocks.get(id);
    const a = this.answer;
    const kind: [string, string] = ["record", a ? `${a.kv_dtype}, ${a.block_tok} tokens, ${bytes(a.block_bytes)}` : "–"];
    if (!b) return [["state", STATES["."].label], kind];
    const by = this.holdersOf(id);
    return [
      ["state", STATES[b.state].label],
      ["holders", b.holders ? `${b.holders}${by.length ? `: ${by.slice(0, 6).map((r) => `request ${r.id}`).join(", ")}${by.length > 6 ? ", …" : ""}` : ""}` : "none"],
      ["hits", count(b.hits)],
      ["continues", b.parent >= 0 ? `block ${b.parent}` : b.key ? "nothing: a beginning" : "not known yet"],
      ["key", b.key ? `${b.key}…` : "not findable yet: still being filled"],
      kind,
    ];
  }

  private sentence(id: number): string {
    return `Block ${id}: ${this.facts(id).map(([k, v]) => `${k} ${v}`).join("; ")}`;
  }

  private describe(): void {
    const id = this.hovered ?? this.picked;
    setText(this.detailsTitle, id === null ? "Block" : `Block ${id}`);
    const rows: [string, string][] =
      id === null
        ? [["", "Point at a block, or move in the map with the arrow keys."], ...(["h", "m", "1", "."] as State[]).map((s): [string, string] => [STATES[s].short, STATES[s].text])]
        : this.facts(id);
    this.details.replaceChildren(...rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
  }

  private tabulate(): void {
    if (!this.blockTable.open) return;
    const list = [...this.blocks.values()].slice(0, TABLE_ROWS);
    this.blockTableBox.replaceChildren(
      list.length
        ? table(
            this.blocks.size > list.length ? `The first ${list.length} of ${count(this.blocks.size)} blocks that are not free` : "Blocks that are not free",
            ["block", "state", "holders", "hits", "continues", "key"],
            list.map((b) => [b.id, STATES[b.state].label, b.holders, b.hits, b.parent >= 0 ? b.parent : "–", b.key || "–"]),
          )
        : h("p", { class: "muted" }, "All blocks are free."),
    );
  }

  private drawMemory(): void {
    const c = this.cfg;
    if (!c) return;
    const s = this.last?.blocks;
    const used = s ? s.all - s.free : 0;
    const tokens = (used || c.engine.n_block) * c.engine.block_tok;
    setText(
      this.memoryLine,
      used
        ? `${count(tokens)} tokens in ${count(used)} blocks that are held or cached now.`
        : `A full pool: ${count(tokens)} tokens. With tokens in the cache, these are counted.`,
    );
    const served = c.compare.find((r) => r.served)?.bytes_per_token ?? c.engine.kv_bytes_per_tok;
    const most = Math.max(1, ...c.compare.map((r) => r.bytes_per_token));
    if (this.memory.childElementCount !== c.compare.length) {
      this.memory.replaceChildren(
        ...c.compare.map((r) =>
          h("div", { class: r.served ? "bar served" : "bar" }, h("span", { class: "bar-name" }, r.name in RECORD_NAMES ? recordName(r.name) : r.label, h("span", { class: "muted small" }, r.note)), h("span", { class: "bar-track", "aria-hidden": "true" }, h("i", {})), h("span", { class: "bar-value" })),
        ),
      );
    }
    c.compare.forEach((r, i) => {
      const row = this.memory.children[i];
      row?.querySelector<HTMLElement>("i")?.style.setProperty("width", `${(100 * r.bytes_per_token) / most}%`);
      const value = row?.querySelector(".bar-value");
      if (value) setText(value, `${bytes(r.bytes_per_token * tokens)}${r.served ? "  served here" : `  ${times(r.bytes_per_token / served)}`}`);
    });
  }
}
