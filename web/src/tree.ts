// tree.ts - the prefix tree: one row for each run of blocks, drawn as bars at their depth in the
// text, with lines from the run that they continue; the rows are a tree for keyboard and readers.
import type { CacheRequest } from "./api";
import { type Block, type Run, runsOf } from "./chains";
import { colour, fit, h, setText } from "./dom";
import { count } from "./format";
import { STATES, type State } from "./grid";

const ROW = 28;
const LIMIT = 60;

export class Tree {
  readonly el: HTMLElement;
  onpick: (blocks: Block[], label: string) => void = () => undefined;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly rows = h("div", { class: "tree-rows", role: "tree", "aria-label": "Prefix tree" });
  private readonly note = h("p", { class: "muted small" });
  private runs: Run[] = [];
  private current = 0;
  private frame = 0;

  constructor() {
    this.el = h("div", { class: "tree" }, h("div", { class: "tree-scroll" }, this.canvas, this.rows), this.note);
    new ResizeObserver(() => this.draw()).observe(this.el);
    this.rows.addEventListener("keydown", (e) => {
      const to = { ArrowDown: this.current + 1, ArrowUp: this.current - 1, Home: 0, End: this.runs.length - 1, ArrowLeft: this.runs[this.current]?.parentRow ?? -1 }[e.key];
      if (to !== undefined && to >= 0 && to < this.runs.length) {
        e.preventDefault();
        this.select(to, true);
      } else if (e.key === "Enter" || e.key === " ") {
        e.preventDefault();
        this.select(this.current, true);
      }
    });
    this.rows.addEventListener("click", (e) => {
      const item = (e.target as Element).closest("[role=treeitem]");
      if (item) this.select(Array.prototype.indexOf.call(this.rows.children, item), true);
    });
  }

  set(blocks: Map<number, Block>, requests: CacheRequest[]): void {
    const { runs, leftOut } = runsOf(blocks, requests, LIMIT);
    this.runs = runs;
    this.current = Math.min(this.current, Math.max(runs.length - 1, 0));
    while (this.rows.childElementCount > runs.length) this.rows.lastElementChild?.remove();
    runs.forEach((run, i) => {
      let item = this.rows.children[i] as HTMLElement | undefined;
      if (!item) {
        item = h("div", { role: "treeitem", class: "tree-row" }, h("span", { class: "tree-label" }), h("span", { class: "tree-req" }));
        this.rows.append(item);
      }
      item.setAttribute("aria-level", String(run.level));
      item.setAttribute("aria-selected", String(i === this.current));
      item.tabIndex = i === this.current ? 0 : -1;
      const [label, req] = item.children;
      if (label) setText(label, this.label(run));
      if (req) setText(req, run.ends.map((r) => `request ${r.request.id}`).join(", "));
    });
    setText(
      this.note,
      runs.length === 0
        ? "Nothing is cached yet. Ask something, and its blocks appear here."
        : leftOut
          ? `The ${runs.length} largest branches of ${runs.length + leftOut} are drawn.`
          : "A row is a beginning and its longest continuation; what branches off continues it from there. A mark over a block is where a request is.",
    );
    this.draw();
  }

  private label(run: Run): string {
    const n = run.blocks.length;
    const hits = Math.max(0, ...run.blocks.map((b) => b.hits));
    const key = run.blocks[0]?.key;
    return `${count(n)} block${n === 1 ? "" : "s"}${hits ? ` · ${count(hits)} hit${hits === 1 ? "" : "s"}` : ""}${key ? ` · ${key}` : ""}`;
  }

  private select(i: number, focus: boolean): void {
    [this.current, i].forEach((k, j) => {
      const item = this.rows.children[k] as HTMLElement | undefined;
      item?.setAttribute("aria-selected", String(j === 1));
      if (item) item.tabIndex = j === 1 ? 0 : -1;
      if (item && j === 1 && focus) item.focus();
    });
    this.current = i;
    const run = this.runs[i];
    if (run) this.onpick(run.blocks, this.label(run));
  }

  draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    this.canvas.hidden = this.runs.length === 0;
    const width = Math.floor(this.rows.clientWidth);
    if (width < 20) return;
    const c = fit(this.canvas, width, this.runs.length * ROW);
    if (!c) return;
    c.clearRect(0, 0, width, this.runs.length * ROW);
    const deepest = Math.max(8, ...this.runs.map((r) => r.depth + r.blocks.length));
    const room = Math.max(60, width - 250); // the rest is for the words
    const unit = Math.min(16, room / deepest);
    const x = (depth: number): number => 10 + depth * unit;
    const gap = unit >= 5 ? 1.5 : 0;
    c.lineWidth = 1.25;
    c.strokeStyle = colour("faint-ink");
    for (const run of this.runs) {
      const y = run.row * ROW + ROW / 2;
      if (run.parentRow < 0) continue;
      const py = run.parentRow * ROW + ROW / 2;
      const px = x(run.depth) - 3;
      c.beginPath();
      c.moveTo(px, py + 6);
      c.lineTo(px, y - 4);
      c.quadraticCurveTo(px, y, px + 4, y);
      c.stroke();
    }
    for (const run of this.runs) this.bar(c, run, x, unit, gap);
    this.runs.forEach((run, i) => {
      const item = this.rows.children[i] as HTMLElement | undefined;
      item?.style.setProperty("--x", `${Math.round(x(run.depth + run.blocks.length) + 10)}px`);
    });
  }

  private bar(c: CanvasRenderingContext2D, run: Run, x: (d: number) => number, unit: number, gap: number): void {
    const y = run.row * ROW + ROW / 2 - 6;
    const fills = new Map<State, string>();
    for (const s of Object.keys(STATES) as State[]) fills.set(s, colour(`state-${STATES[s].key}`));
    run.blocks.forEach((b, k) => {
      c.fillStyle = fills.get(b.state) ?? "";
      c.beginPath();
      c.roundRect(x(run.depth + k), y, Math.max(unit - gap, 0.8), 12, gap ? 2 : 0);
      c.fill();
    });
    c.fillStyle = colour("ink");
    for (const { depth } of run.ends) {
      const end = x(depth) - gap + 1;
      c.beginPath();
      c.moveTo(end - 4, y - 5);
      c.lineTo(end + 4, y - 5);
      c.lineTo(end, y + 1);
      c.fill();
    }
  }
}
