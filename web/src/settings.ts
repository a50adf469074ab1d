// settings.ts - the form of sampling settings; an empty field leaves the choice to the server.
import type { Config } from "./api";
import { h } from "./dom";

interface Field {
  key: string;
  label: string;
  hint: string;
  min: number;
  max?: number;
  step: number;
  whole?: boolean;
}

const FIELDS: Field[] = [
  { key: "temperature", label: "Temperature", hint: "0 always takes the first choice", min: 0, max: 2, step: 0.05 },
  { key: "top_p", label: "Top p", hint: "smallest set of tokens with this probability", min: 0, max: 1, step: 0.01 },
  { key: "top_k", label: "Top k", hint: "this many tokens at most; 0 is off", min: 0, step: 1, whole: true },
  { key: "min_p", label: "Min p", hint: "relative to the likeliest token; 0 is off", min: 0, max: 1, step: 0.01 },
  { key: "max_tokens", label: "Max tokens", hint: "length of the answer", min: 1, step: 1, whole: true },
  { key: "seed", label: "Seed", hint: "same seed, same request: same tokens", min: 0, step: 1, whole: true },
];

const STORE = "nibble.settings";

export class Settings {
  readonly el: HTMLElement;
  readonly system: HTMLTextAreaElement;
  private readonly systemRow: HTMLElement;
  private readonly inputs = new Map<string, HTMLInputElement>();

  constructor() {
    this.system = h("textarea", { id: "set-system", rows: 3, placeholder: "None" });
    this.systemRow = h("div", { class: "field" }, h("label", { for: "set-system" }, "System prompt"), this.system);
    const rows = FIELDS.map((f) => {
      const input = h("input", {
        id: `set-${f.key}`,
        type: "number",
        inputmode: f.whole ? "numeric" : "decimal",
        min: f.min,
        max: f.max,
        step: f.step,
        "aria-describedby": `hint-${f.key}`,
        placeholder: f.key === "max_tokens" ? "256" : f.key === "seed" ? "random" : "default",
      });
      this.inputs.set(f.key, input);
      return h(
        "div",
        { class: "field row" },
        h("label", { for: input.id }, f.label),
        input,
        h("p", { id: `hint-${f.key}`, class: "hint" }, f.hint),
      );
    });
    const reset = h("button", { type: "button", class: "quiet" }, "Reset to defaults");
    reset.addEventListener("click", () => {
      for (const input of this.inputs.values()) input.value = "";
      this.system.value = "";
      this.save();
    });
    const body = h("div", { class: "fields" }, this.systemRow, ...rows, reset);
    const details = h("details", { class: "panel settings", open: !matchMedia("(max-width: 900px)").matches }, h("summary", {}, "Sampling"), body);
    body.addEventListener("change", () => this.save());
    this.el = details;
    this.load();
  }

  /** Writes the server's defaults into the empty fields. */
  defaults(c: Config): void {
    for (const key of ["temperature", "top_p", "top_k", "min_p"] as const) {
      const input = this.inputs.get(key);
      if (input) input.placeholder = String(c.sampling[key]);
    }
  }

  showSystem(on: boolean): void {
    this.systemRow.hidden = !on;
  }

  /** Fields of the request body, or the line that says which one is wrong. */
  values(): Record<string, number> | string {
    const out: Record<string, number> = { max_tokens: 256 };
    for (const f of FIELDS) {
      const input = this.inputs.get(f.key);
      if (!input) continue;
      const bad = !input.checkValidity();
      input.setAttribute("aria-invalid", String(bad));
      if (bad) {
        input.focus();
        return `${f.label}: ${input.validationMessage || "not a number in range"}`;
      }
      if (input.value !== "") out[f.key] = Number(input.value);
    }
    return out;
  }

  private save(): void {
    const all: Record<string, string> = { system: this.system.value };
    for (const [key, input] of this.inputs) all[key] = input.value;
    try {
      sessionStorage.setItem(STORE, JSON.stringify(all));
    } catch {
      // no storage: the settings last as long as the page
    }
  }

  private load(): void {
    try {
      const all = JSON.parse(sessionStorage.getItem(STORE) ?? "{}") as Record<string, unknown>;
      for (const [key, input] of this.inputs) if (typeof all[key] === "string") input.value = all[key];
      if (typeof all.system === "string") this.system.value = all.system;
    } catch {
      // nothing stored, or not ours
    }
  }
}
