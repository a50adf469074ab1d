// plots.ts - what happened in the last minutes: three small plots with one time axis.
import uPlot from "uplot";
import type { Stats } from "./api";
import { colour, h, setText, table } from "./dom";
import { rate } from "./format";

const KEEP = 300; // samples, one each second

interface Series {
  label: string;
  colour: string;
}

interface Panel {
  title: string;
  unit: string;
  top?: number; // fixed top of the scale
  series: Series[];
}

const PANELS: Panel[] = [
  { title: "Prefix hits", unit: "% of prompt tokens", top: 100, series: [{ label: "found in the cache", colour: "state-many" }] },
  { title: "Requests", unit: "", series: [{ label: "running", colour: "state-held" }, { label: "waiting", colour: "state-once" }] },
  { title: "Tokens per second", unit: "", series: [{ label: "generated", colour: "state-held" }, { label: "prompt computed", colour: "state-once" }] },
];

type Row = [time: number, hit: number | null, running: number, waiting: number, generated: number, prompt: number];

export class Plots {
  readonly el: HTMLElement;
  private rows: Row[] = [];
  private last: Stats | null = null;
  private readonly boxes = PANELS.map((p) => ({ panel: p, box: h("div", { class: "plot", "aria-hidden": "true" }), now: h("span", { class: "plot-now" }), plot: null as uPlot | null }));
  private readonly tableBox = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Last values" });
  private readonly details: HTMLDetailsElement;
  private active = false;

  constructor() {
    this.details = h("details", { class: "numbers" }, h("summary", {}, "As a table"), this.tableBox);
    this.details.addEventListener("toggle", () => this.tabulate());
    this.el = h(
      "div",
      { class: "plots" },
      ...this.boxes.map((b) =>
        h("figure", {}, h("figcaption", {}, h("span", { class: "plot-title" }, b.panel.title, b.panel.unit && h("span", { class: "muted" }, ` ${b.panel.unit}`)), b.now), b.box),
      ),
      this.details,
    );
    new ResizeObserver(() => this.resize()).observe(this.el);
  }

  push(s: Stats): void {
    const old = this.last;
    this.last = s;
    if (!old || s.uptime_s < old.uptime_s) {
      this.rows = [];
      return;
    }
    const dt = s.uptime_s - old.uptime_s;
    if (dt <= 0) return;
    const asked = s.prefix_queries - old.prefix_queries;
    const computed = s.prompt_tokens - old.prompt_tokens - (s.prompt_tokens_cached - old.prompt_tokens_cached);
    this.rows.push([
      Date.now() / 1000,
      asked > 0 ? (100 * (s.prefix_hits - old.prefix_hits)) / asked : null,
      s.running,
      s.waiting,
      (s.generated_tokens - old.generated_tokens) / dt,
      Math.max(0, computed) / dt,
    ]);
    if (this.rows.length > KEEP) this.rows.shift();
    if (this.active) this.update();
  }

  shown(on: boolean): void {
    this.active = on;
    if (on) requestAnimationFrame(() => this.update());
  }

  /** New colours: uPlot takes them when it is made. */
  themed(): void {
    for (const b of this.boxes) {
      b.plot?.destroy();
      b.plot = null;
    }
    if (this.active) this.update();
  }

  private resize(): void {
    for (const b of this.boxes) if (b.plot && b.box.clientWidth > 0) b.plot.setSize({ width: b.box.clientWidth, height: 120 });
  }

  private data(k: number): uPlot.AlignedData {
    const t = this.rows.map((r) => r[0]);
    const columns = [[1], [2, 3], [4, 5]][k] ?? [];
    return [t, ...columns.map((c) => this.rows.map((r) => r[c] ?? null))] as uPlot.AlignedData;
  }

  private update(): void {
    this.boxes.forEach((b, k) => {
      if (b.box.clientWidth <= 0) return;
      b.plot ??= this.make(b.panel, b.box, this.data(k));
      const now = Date.now() / 1000;
      b.plot.setData(this.data(k), false);
      b.plot.setScale("x", { min: now - KEEP, max: now });
      const row = this.rows[this.rows.length - 1];
      const values = row ? ([[row[1]], [row[2], row[3]], [row[4], row[5]]][k] ?? []) : [];
      setText(b.now, values.map((v, i) => `${b.panel.series[i]?.label ?? ""} ${v === null || v === undefined ? "–" : k === 1 ? String(v) : rate(v)}`).join("  "));
    });
    this.tabulate();
  }

  private make(p: Panel, box: HTMLElement, data: uPlot.AlignedData): uPlot {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px 'Plex Mono', monospace" };
    return new uPlot(
      {
        width: box.clientWidth,
        height: 120,
        legend: { show: false },
        cursor: { show: false },
        padding: [8, 4, 0, 0],
        scales: {
          x: { time: true, auto: false },
          y: { range: (_u, _min, max) => [0, p.top ?? Math.max(1, max * 1.15)] },
        },
        axes: [
          { ...axis, size: 22, space: 60, values: (_u, ticks) => ticks.map((t) => `${Math.round((t - Date.now() / 1000) / 30) * 30} s`), splits: () => [240, 180, 120, 60, 0].map((s) => Date.now() / 1000 - s) },
          { ...axis, size: 40, space: 28 },
        ],
        series: [
          {},
          ...p.series.map((s, i) => ({
            stroke: colour(s.colour),
            width: 1.75,
            points: p.top === undefined ? { show: false } : { show: true, size: 5, fill: colour(s.colour) },
            spanGaps: true,
            ...(i === 1 ? { dash: [5, 3] } : {}),
          })),
        ],
      },
      data,
      box,
    );
  }

  private tabulate(): void {
    if (!this.details.open) return;
    const rows = this.rows.slice(-20).reverse();
    const now = Date.now() / 1000;
    this.tableBox.replaceChildren(
      table(
        "The last 20 seconds",
        ["seconds ago", "prefix hits %", "running", "waiting", "generated / s", "prompt computed / s"],
        rows.map((r) => [Math.round(now - r[0]), r[1] === null ? "–" : r[1].toFixed(1), r[2], r[3], rate(r[4]), rate(r[5])]),
      ),
    );
  }
}
