// trace.ts - one token's values as a flat drawing: bars of the values, and under them the error
// of each precision. It is the drawing where there is no WebGL, and a ruler beside it elsewhere.
import { colour, fit, h } from "./dom";

export interface TraceData {
  values: number[];
  split: number;
  errors: { label: string; colour: string; values: number[] }[];
}

const TOP = 96; // pixels of the values
const BAND = 34; // of each error
const LEFT = 82;

export class Trace {
  readonly el: HTMLElement;
  onpick: (value: number) => void = () => undefined;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private data: TraceData | null = null;
  private at = 0;
  private frame = 0;

  constructor() {
    this.el = h("div", { class: "trace" }, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.el);
    const pick = (e: PointerEvent | MouseEvent): void => {
      const n = this.data?.values.length ?? 0;
      const box = this.canvas.getBoundingClientRect();
      const k = Math.floor(((e.clientX - box.left - LEFT) / (box.width - LEFT)) * n);
      if (k >= 0 && k < n) this.onpick(k);
    };
    this.canvas.addEventListener("pointermove", pick);
    this.canvas.addEventListener("pointerdown", pick);
  }

  set(data: TraceData): void {
    this.data = data;
    this.draw();
  }

  select(value: number): void {
    this.at = value;
    this.draw();
  }

  draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const d = this.data;
    const width = Math.floor(this.el.clientWidth);
    if (!d || width < 80) return;
    const height = TOP + 10 + d.errors.length * BAND;
    const c = fit(this.canvas, width, height);
    if (!c) return;
    c.clearRect(0, 0, width, height);
    const n = d.values.length;
    const unit = (width - LEFT) / n;
    const x = (i: number): number => LEFT + i * unit;
    const most = Math.max(1e-30, ...d.values.map(Math.abs));
    c.font = "11px 'Plex Mono', monospace";
    c.textBaseline = "middle";
    c.fillStyle = colour("muted");
    c.fillText("value", 0, TOP / 2);
    d.values.forEach((v, i) => {
      c.fillStyle = colour(v < 0 ? "value-neg" : "value-pos");
      const len = (Math.abs(v) / most) * (TOP / 2 - 2);
      c.fillRect(x(i), v < 0 ? TOP / 2 : TOP / 2 - len, Math.max(unit - (unit > 3 ? 1 : 0), 0.7), Math.max(len, 0.5));
    });
    const worst = Math.max(1e-30, ...d.errors.flatMap((e) => e.values.map(Math.abs)));
    d.errors.forEach((e, k) => {
      const y0 = TOP + 10 + (k + 1) * BAND - 4;
      c.fillStyle = colour("muted");
      c.fillText(`${e.label} error`, 0, y0 - BAND / 2 + 4);
      c.fillStyle = colour(e.colour);
      e.values.forEach((v, i) => {
        const len = (Math.abs(v) / worst) * (BAND - 8);
        c.fillRect(x(i), y0 - len, Math.max(unit - (unit > 3 ? 1 : 0), 0.7), len);
      });
      c.fillStyle = colour("line");
      c.fillRect(LEFT, y0, width - LEFT, 1);
    });
    c.fillStyle = colour("line");
    c.fillRect(LEFT, TOP / 2, width - LEFT, 1);
    c.fillStyle = colour("faint-ink");
    if (d.split < n) c.fillRect(x(d.split), 0, 1, height);
    c.fillStyle = colour("ink");
    c.globalAlpha = 0.85;
    c.fillRect(x(this.at) + unit / 2 - 0.75, 0, 1.5, height);
    c.globalAlpha = 1;
  }
}
