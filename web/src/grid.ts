// grid.ts - every block of the pool as one cell: canvas, pointer, keyboard.
import { colour, fit, h } from "./dom";

export const STATES = {
  ".": { key: "free", short: "free", label: "free", text: "Nobody holds it, and nothing in it can be found." },
  h: { key: "held", short: "held", label: "held", text: "Running requests use it." },
  "1": { key: "once", short: "once", label: "cached once", text: "Cached, not found again yet. These go first." },
  m: { key: "many", short: "again", label: "cached, found again", text: "Cached and found again. These are kept longer." },
} as const;
export type State = keyof typeof STATES;

export const stateOf = (c: string | undefined): State => (c === "h" || c === "1" || c === "m" ? c : ".");

const GAP_FROM = 5; // cells of this many pixels have a gap between them

export class Grid {
  readonly el: HTMLElement;
  onpick: (id: number, said: boolean) => void = () => undefined;
  onhover: (id: number | null) => void = () => undefined;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private state = "";
  private cols = 1;
  private cell = 8;
  private picked = -1;
  private marked = new Set<number>();
  private frame = 0;

  constructor() {
    this.el = h("div", {
      class: "grid",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "map of blocks",
      "aria-label": "Blocks of the cache. Arrow keys move from block to block, Home and End to the first and last.",
    }, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.el);
    this.el.addEventListener("pointermove", (e) => this.onhover(this.at(e)));
    this.el.addEventListener("pointerleave", () => this.onhover(null));
    this.el.addEventListener("click", (e) => {
      const id = this.at(e);
      if (id !== null) this.pick(id, false);
    });
    this.el.addEventListener("keydown", (e) => {
      const n = this.state.length;
      const now = Math.max(this.picked, 0);
      const page = this.cols * 8;
      const to = {
        ArrowRight: now + 1, ArrowLeft: now - 1, ArrowDown: now + this.cols, ArrowUp: now - this.cols,
        PageDown: now + page, PageUp: now - page, Home: 0, End: n - 1,
      }[e.key];
      if (to === undefined || !n) return;
      e.preventDefault();
      const first = this.picked < 0 && e.key !== "End"; // the first key shows where one is
      this.pick(first ? 0 : Math.min(Math.max(to, 0), n - 1), true);
    });
  }

  set(state: string): void {
    this.state = state;
    if (this.picked >= state.length) this.picked = -1;
    this.draw();
  }

  /** Blocks to outline: those of one request or chain. */
  mark(ids: Iterable<number>): void {
    this.marked = new Set(ids);
    this.draw();
  }

  pick(id: number, said: boolean): void {
    this.picked = id;
    this.draw();
    this.onpick(id, said);
  }

  private at(e: PointerEvent | MouseEvent): number | null {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((e.clientX - box.left) / this.cell);
    const y = Math.floor((e.clientY - box.top) / this.cell);
    const id = y * this.cols + x;
    return x >= 0 && x < this.cols && y >= 0 && id < this.state.length ? id : null;
  }

  draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const width = Math.floor(this.el.clientWidth);
    const n = this.state.length;
    if (width < 20 || !n) return;
    // The largest cell with which all blocks fit into the width and about 360 pixels of height.
    this.cell = Math.min(28, Math.max(2, Math.floor(Math.sqrt((width * 360) / n))));
    this.cols = Math.max(1, Math.floor(width / this.cell));
    const rows = Math.ceil(n / this.cols);
    const c = fit(this.canvas, width, rows * this.cell);
    if (!c) return;
    const gap = this.cell >= GAP_FROM ? (this.cell >= 12 ? 2 : 1) : 0;
    const side = this.cell - gap;
    c.clearRect(0, 0, width, rows * this.cell);
    for (const [s, { key }] of Object.entries(STATES)) {
      c.fillStyle = colour(`state-${key}`);
      c.beginPath();
      for (let i = this.state.indexOf(s); i >= 0; i = this.state.indexOf(s, i + 1))
        c.rect((i % this.cols) * this.cell, Math.floor(i / this.cols) * this.cell, side, side);
      c.fill();
    }
    c.strokeStyle = colour("ink");
    c.lineWidth = 1;
    for (const id of this.marked) this.outline(c, id, side, 0.5);
    if (this.picked >= 0) {
      c.lineWidth = 2;
      this.outline(c, this.picked, Math.max(side, 6), -1);
    }
  }

  private outline(c: CanvasRenderingContext2D, id: number, side: number, inset: number): void {
    const x = (id % this.cols) * this.cell;
    const y = Math.floor(id / this.cols) * this.cell;
    c.strokeRect(x + inset, y + inset, side - 2 * inset, side - 2 * inset);
  }
}
