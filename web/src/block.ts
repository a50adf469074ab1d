// block.ts - one block up close: the same page at BF16, FP8 and 4 bits.
import { ApiError, type Config, get, type PageAnswer, type PageRecord, request } from "./api";
import { h, say, setText, table } from "./dom";
import { bytes, count, num, times } from "./format";
import { bitsPerValue, cellOf, place, planeOf, recordName, shownText } from "./page";
import type { Scene } from "./scene";
import { Trace } from "./trace";

const PAGE_TOK = 64;
type Shade = "value" | "error";

export class BlockView {
  private readonly stage: HTMLElement;
  private readonly labels = h("div", { class: "slab-labels", "aria-hidden": "true" });
  private readonly fallback = h("p", { class: "note", hidden: true });
  private readonly trace = new Trace();
  private readonly where = h("p", { class: "muted" });
  private readonly valueTitle = h("h3", {}, "Value");
  private readonly valueBox = h("div", { class: "scroll" });
  private readonly sumBox = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Precisions compared" });
  private readonly allBox = h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "All values of the token" });
  private readonly all: HTMLDetailsElement;
  private readonly layer: HTMLSelectElement;
  private readonly token: HTMLInputElement;
  private readonly tokenText = h("output", { for: "block-token" });
  private readonly valueNo: HTMLInputElement;
  private readonly words = h("p", { class: "words", "aria-hidden": "true" });
  private readonly follow: HTMLInputElement;
  private readonly empty: HTMLElement;
  private readonly body: HTMLElement;
  private readonly message = h("p", { class: "error", role: "alert", hidden: true });
  private four = "nvfp4";
  private shade: Shade = "value";
  private scene: Scene | null = null;
  private sceneTried = false;
  private answer: PageAnswer | null = null;
  private planes = new Map<string, Int8Array>();
  private cfg: Config | null = null;
  private active = false;
  private tok = 0;
  private value = 0;
  private timer = 0;
  private asked = 0;

  constructor(root: HTMLElement) {
    this.layer = h("select", { id: "block-layer" });
    this.token = h("input", { type: "range", id: "block-token", min: 0, max: 63, value: 0 });
    this.valueNo = h("input", { type: "number", id: "block-value", min: 0, max: 575, step: 1, value: 0 });
    this.follow = h("input", { type: "checkbox", id: "block-follow", checked: true });
    this.stage = h("div", {
      class: "stage", tabindex: 0, role: "application", "aria-roledescription": "three-dimensional drawing",
      "aria-label": "One page at three precisions. Left and right move by value, up and down by token, Page Up and Page Down by 16 values.",
    }, this.labels, this.fallback);
    this.all = h("details", { class: "numbers" }, h("summary", {}, "All values of this token as a table"), this.allBox);
    this.all.addEventListener("toggle", () => this.tabulate());
    const write = h("button", { type: "button", class: "primary" }, "Write a few tokens");
    write.addEventListener("click", () => void this.write(write));
    this.empty = h("div", { class: "empty", hidden: true }, h("h2", {}, "No page to show yet"), h("p", { class: "muted" }, "The drawing uses real values of a token, so something has to run first."), write);
    const view = (text: string, label: string, fn: (s: Scene) => void): HTMLElement => {
      const b = h("button", { type: "button", class: "quiet small", "aria-label": label, title: label }, text);
      b.addEventListener("click", () => this.scene && fn(this.scene));
      return b;
    };
    this.body = h(
      "div",
      { class: "block-grid" },
      h(
        "section",
        { class: "panel stage-panel", "aria-label": "Drawing" },
        h(
          "div",
          { class: "panel-head" },
          this.radios("four", "4-bit record", [["nvfp4", "NVFP4"], ["if4", "IF4"]], (v) => (this.four = v)),
          this.radios("shade", "Colour", [["value", "Value"], ["error", "Error"]], (v) => (this.shade = v as Shade)),
          h("div", { class: "view-buttons" }, view("⟲", "Turn left", (s) => s.turn(-Math.PI / 8)), view("⟳", "Turn right", (s) => s.turn(Math.PI / 8)), view("+", "Nearer", (s) => s.zoom(1.25)), view("−", "Farther", (s) => s.zoom(0.8)), view("Reset", "Reset the view", (s) => s.home())),
        ),
        this.stage,
        h("p", { class: "scale" }, h("i", { class: "ramp", "aria-hidden": "true" }), h("span", { class: "small muted" }, "Height is bits per value: volume is memory. Blue is negative, orange positive; in the error view, orange is the error.")),
        this.trace.el,
      ),
      h(
        "section",
        { class: "panel side", "aria-label": "Numbers" },
        h(
          "div",
          { class: "fields" },
          h("div", { class: "field row" }, h("label", { for: "block-layer" }, "Layer"), this.layer),
          h("div", { class: "field" }, h("label", { for: "block-token" }, "Token ", this.tokenText), this.token),
          h("div", { class: "field row" }, h("label", { for: "block-value" }, "Value"), this.valueNo),
          h("label", { class: "check", for: "block-follow" }, this.follow, " Follow the running request"),
        ),
        this.words,
        this.valueTitle,
        this.valueBox,
      ),
      h("section", { class: "panel wide", "aria-label": "Precisions compared" }, h("h3", {}, "This token, this page"), this.sumBox, this.all),
    );
    root.append(h("div", { class: "view-head" }, h("h2", {}, "Block"), this.where), this.message, this.empty, this.body);
    this.wire();
  }

  private radios(name: string, legend: string, options: [string, string][], set: (v: string) => void): HTMLElement {
    return h(
      "fieldset",
      { class: "segmented" },
      h("legend", { class: "sr" }, legend),
      ...options.map(([value, text], i) => {
        const input = h("input", { type: "radio", name, value, id: `${name}-${value}`, checked: i === 0 });
        input.addEventListener("change", () => {
          set(value);
          this.draw();
        });
        return h("label", { for: input.id }, input, h("span", {}, text));
      }),
    );
  }

  private wire(): void {
    this.layer.addEventListener("change", () => this.refresh());
    this.token.addEventListener("input", () => this.goToken(Number(this.token.value)));
    this.valueNo.addEventListener("input", () => {
      if (this.valueNo.checkValidity() && this.valueNo.value !== "") this.goValue(this.valueNo.valueAsNumber);
    });
    this.follow.addEventListener("change", () => this.refresh());
    this.trace.onpick = (v) => this.goValue(v);
    this.words.addEventListener("click", (e) => {
      const k = Array.prototype.indexOf.call(this.words.children, e.target);
      if (k >= 0) this.goToken(k);
    });
    this.stage.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 16, PageUp: -16 }[e.key];
      const row = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      const end = { Home: 0, End: (this.answer?.n_values ?? 1) - 1 }[e.key];
      if (step !== undefined) this.goValue(this.value + step, true);
      else if (row !== undefined) this.goToken(this.tok + row, true);
      else if (end !== undefined) this.goValue(end, true);
      else return;
      e.preventDefault();
    });
  }

  config(c: Config): void {
    this.cfg = c;
    this.layer.replaceChildren(...Array.from({ length: c.engine.n_layer }, (_, i) => h("option", { value: i }, `${i} of ${c.engine.n_layer - 1}`)));
    if (this.active) this.refresh();
  }

  shown(on: boolean): void {
    this.active = on;
    if (on) {
      this.refresh();
      void this.setUpScene();
    }
  }

  themed(): void {
    this.scene?.paint();
    this.trace.draw();
  }

  refresh(): void {
    clearTimeout(this.timer);
    if (this.active && !document.hidden && this.cfg) void this.load(true);
  }

  private async setUpScene(): Promise<void> {
    if (this.sceneTried) return;
    this.sceneTried = true;
    try {
      const { Scene } = await import("./scene");
      const scene = new Scene(this.stage, this.labels);
      this.scene = scene;
      let dwell = 0;
      scene.onhover = (p) => {
        clearTimeout(dwell);
        if (!p) return;
        if (p.row === this.tok) this.goValue(p.col);
        else dwell = window.setTimeout(() => { this.value = p.col; this.goToken(p.row); }, 140);
      };
      scene.onpick = (p) => {
        this.value = p.col;
        this.goToken(p.row);
      };
      this.draw();
    } catch {
      this.stage.classList.add("flat");
      setText(this.fallback, "This browser draws no WebGL, so the block is flat here: the bars below and the tables have all of its numbers.");
      this.fallback.hidden = false;
    }
  }

  private async load(again: boolean): Promise<void> {
    const no = ++this.asked;
    clearTimeout(this.timer);
    try {
      const a = await get<PageAnswer>(`api/block?layer=${Number(this.layer.value) || 0}&tok=${this.tok}`, AbortSignal.timeout(10000));
      if (no !== this.asked) return;
      this.answer = a;
      this.planes = new Map(a.records.map((r) => [r.dtype, planeOf(r)]));
      this.tok = a.tok;
      this.value = Math.min(this.value, a.n_values - 1);
      this.message.hidden = true;
      this.empty.hidden = true;
      this.body.hidden = false;
      this.draw();
    } catch (e) {
      if (no !== this.asked) return;
      const nothing = e instanceof ApiError && e.status === 404;
      this.empty.hidden = !nothing;
      this.body.hidden = nothing && !this.answer;
      this.message.hidden = nothing;
      setText(this.message, `The block cannot be shown: ${e instanceof Error ? e.message : String(e)}`);
      if (e instanceof ApiError && e.status === 401) return;
    }
    if (again && this.active && this.follow.checked) this.timer = window.setTimeout(() => this.refresh(), 2000);
  }

  private async write(button: HTMLButtonElement): Promise<void> {
    button.disabled = true;
    try {
      await request("v1/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ model: this.cfg?.name, prompt: "Once upon a time", max_tokens: 40 }),
      });
    } catch (e) {
      setText(this.message, e instanceof Error ? e.message : String(e));
      this.message.hidden = false;
    }
    button.disabled = false;
    this.refresh();
  }

  private goToken(tok: number, said = false): void {
    const a = this.answer;
    if (!a) return;
    this.tok = Math.min(Math.max(tok, 0), a.n_tok - 1);
    setText(this.tokenText, `${this.tok} ${shownText(a.tokens[this.tok])}`);
    void this.load(this.follow.checked).then(() => {
      if (said) say(`Token ${this.tok}: ${a.tokens[this.tok]?.text ?? ""}. ${this.sentence()}`);
    });
  }

  private goValue(value: number, said = false): void {
    const a = this.answer;
    if (!a) return;
    this.value = Math.min(Math.max(Math.trunc(value), 0), a.n_values - 1);
    this.drawValue();
    if (said) say(this.sentence());
  }

  private chosen(): PageRecord[] {
    return ["bf16", "fp8", this.four].map((d) => this.answer?.records.find((r) => r.dtype === d)).filter((r): r is PageRecord => r !== undefined);
  }

  private sentence(): string {
    const a = this.answer;
    if (!a) return "";
    const cells = this.chosen().map((r) => cellOf(a, r, this.value));
    return `${place(a, this.value).name}: ${cells.map((c) => `${recordName(c.dtype)} ${num(c.reads)}`).join(", ")}`;
  }

  private draw(): void {
    const a = this.answer;
    if (!a) return;
    const split = (a.segments[0]?.n_vec ?? 1) * (a.segments[0]?.dim ?? a.n_values);
    setText(this.where, `Layer ${a.layer}, request ${a.request}, ${a.running ? "running" : "finished"}: its page from position ${count(a.pos0)} on, ${a.n_tok} of ${PAGE_TOK} tokens written, ${a.n_values} values each.`);
    this.token.max = String(Math.max(a.n_tok - 1, 0));
    this.token.value = String(a.tok);
    setText(this.tokenText, `${a.tok} ${shownText(a.tokens[a.tok])}`);
    this.words.replaceChildren(...a.tokens.map((t, i) => h("span", { class: i === a.tok ? "on" : "" }, t.text ?? "\u25a1")));
    this.valueNo.max = String(a.n_values - 1);
    this.drawScene(a, split);
    const records = this.chosen().slice(1);
    this.trace.set({
      values: a.values,
      split,
      errors: records.map((r, i) => ({ label: recordName(r.dtype), colour: i === 0 ? "state-once" : "state-many", values: r.decoded.map((v, k) => v - (a.values[k] ?? 0)) })),
    });
    const bf16 = a.records.find((r) => r.dtype === "bf16");
    const served = this.cfg?.engine.kv_dtype;
    this.sumBox.replaceChildren(
      table(
        "Each precision for this layer",
        ["record", "bytes per token", "bits per value", "against BF16", "a page of 64", "RMS error, token", "RMS error, page", "largest error, token"],
        a.records.map((r) => [
          recordName(r.dtype) + (r.dtype === served ? " (served)" : ""),
          num(r.bytes_per_token, 6), num(bitsPerValue(a, r), 4), bf16 ? times(bf16.bytes_per_token / r.bytes_per_token) : "–", bytes(r.page_bytes), num(r.rmse_token, 3), num(r.rmse_page, 3), num(r.max_error_token, 3),
        ]),
      ),
    );
    this.drawValue();
    this.tabulate();
  }

  private drawScene(a: PageAnswer, split: number): void {
    if (!this.scene) return;
    const w = a.plane_values;
    const base = this.planes.get("bf16");
    const value = (b: number): number => (b / 127) * Math.abs(b / 127);
    // Segments differ in size by far: each has its own scale.
    const most = [1, 1];
    base?.forEach((b, i) => {
      const k = i % w < split ? 0 : 1;
      most[k] = Math.max(most[k] ?? 1, Math.abs(b));
    });
    let worst = 1e-9;
    const errorOf = (p: Int8Array, i: number): number => Math.abs(value(p[i] ?? 0) - value(base?.[i] ?? 0));
    const four = this.planes.get(this.four);
    if (this.shade === "error" && four) for (let i = 0; i < four.length; i++) worst = Math.max(worst, errorOf(four, i));
    this.scene.set({
      rows: a.n_tok,
      capacity: PAGE_TOK,
      cols: w,
      split: Math.min(split, w),
      slabs: this.chosen().map((r) => {
        const p = this.planes.get(r.dtype) ?? new Int8Array();
        return {
          label: recordName(r.dtype),
          notes: [`${num(bitsPerValue(a, r), 3)} bits per value`, bytes(r.page_bytes)],
          bits: bitsPerValue(a, r),
          shade: this.shade === "value" ? (row, col) => (p[row * w + col] ?? 0) / (most[col < split ? 0 : 1] ?? 127) : (row, col) => Math.sqrt(errorOf(p, row * w + col) / worst),
        };
      }),
    });
  }

  private drawValue(): void {
    const a = this.answer;
    if (!a) return;
    if (document.activeElement !== this.valueNo) this.valueNo.value = String(this.value);
    this.scene?.select(a.tok, Math.min(this.value, a.plane_values - 1));
    this.trace.select(this.value);
    setText(this.valueTitle, `Token ${a.tok}, ${place(a, this.value).name}`);
    const cells = this.chosen().map((r) => cellOf(a, r, this.value));
    // Precisions side by side, one line for each property: narrow enough for a side panel.
    this.valueBox.replaceChildren(
      table(
        "This value at each precision",
        ["property", ...cells.map((c) => recordName(c.dtype))],
        [
          ["code", ...cells.map((c) => h("span", { class: "code", title: c.codeName }, c.code))],
          ["block scale", ...cells.map((c) => c.blockScale)],
          ["outer scale", ...cells.map((c) => c.outerScale)],
          ["reads as", ...cells.map((c) => h("b", {}, num(c.reads, 6)))],
          ["error", ...cells.map((c) => num(c.error, 3))],
        ],
      ),
    );
  }

  private tabulate(): void {
    const a = this.answer;
    if (!a || !this.all.open) return;
    const records = this.chosen();
    this.allBox.replaceChildren(
      table(
        `Token ${a.tok}, all ${a.n_values} values`,
        ["value", ...records.flatMap((r) => (r.dtype === "bf16" ? ["BF16"] : [`${recordName(r.dtype)} code`, `${recordName(r.dtype)} reads`, "error"]))],
        a.values.map((_, i) => [
          place(a, i).name,
          ...records.flatMap((r) => {
            const c = cellOf(a, r, i);
            return r.dtype === "bf16" ? [num(c.reads, 6)] : [c.code, num(c.reads, 6), num(c.error, 3)];
          }),
        ]),
      ),
    );
  }
}
