// settings.ts - the form of sampling settings; an empty field leaves the choice to the server.
import type { Config } from "./api";
import { h, setText } from "./dom";
import type { Mode } from "./store";
import { tab } from "./storage";

interface Field {
  key: string;
  label: string;
  hint: string;
  min: number;
  max: number;
  step: number;
}

const WHOLE = Number.MAX_SAFE_INTEGER;
const FIELDS: Field[] = [
  { key: "temperature", label: "Temperature", hint: "0 always takes the likeliest token", min: 0, max: 2, step: 0.05 },
  { key: "top_p", label: "Top p", hint: "smallest set of tokens with this probability", min: 0.001, max: 1, step: 0.01 },
  { key: "top_k", label: "Top k", hint: "this many tokens at most; 0 is off", min: 0, max: 2 ** 31 - 1, step: 1 },
  { key: "min_p", label: "Min p", hint: "relative to the likeliest token; 0 is off", min: 0, max: 1, step: 0.01 },
  { key: "max_tokens", label: "Max tokens", hint: "length of the answer", min: 1, max: WHOLE, step: 1 },
  { key: "seed", label: "Seed", hint: "same seed, same request: same tokens", min: 0, max: WHOLE, step: 1 },
];
/** Of a text that is continued: the server's own default is 16. */
const TEXT_TOKENS = 256;

/** What is wrong with a field, or an empty text. */
function wrong(f: Field, input: HTMLInputElement): string {
  const range = f.max === WHOLE ? `${f.min} or more` : `${f.min} to ${f.max}`;
  const whole = f.step === 1;
  const expected = `expected ${whole ? "a whole number, " : ""}${range}`;
  if (input.validity.badInput) return `${f.label} is not a number: ${expected}.`;
  if (input.value === "") return "";
  const x = Number(input.value);
  return x >= f.min && x <= f.max && (!whole || Number.isInteger(x)) ? "" : `${f.label} is ${input.value}: ${expected}.`;
}

export class Settings {
  readonly el: HTMLDetailsElement;
  readonly system: HTMLTextAreaElement;
  private readonly systemRow: HTMLElement;
  private readonly title = h("summary", {}, "Sampling");
  private readonly inputs = new Map<string, { field: Field; input: HTMLInputElement; hint: HTMLElement }>();

  constructor() {
    this.system = h("textarea", { id: "set-system", rows: 3, placeholder: "None" });
    this.systemRow = h("div", { class: "field" }, h("label", { for: "set-system" }, "System prompt"), this.system);
    const rows = FIELDS.map((field) => {
      const { key, label, min, max, step } = field;
      const input = h("input", {
        id: `set-${key}`,
        type: "number",
        inputmode: step === 1 ? "numeric" : "decimal",
        min,
        max: max === WHOLE ? null : max,
        step: step === 1 ? 1 : "any",
        "aria-describedby": `hint-${key}`,
        placeholder: key === "seed" ? "random" : "default",
      });
      const hint = h("p", { id: `hint-${key}`, class: "hint" }, field.hint);
      this.inputs.set(key, { field, input, hint });
      return h("div", { class: "field row" }, h("label", { for: input.id }, label), input, hint);
    });
    const reset = h("button", { type: "button", class: "quiet" }, "Reset to defaults");
    reset.addEventListener("click", () => {
      for (const { input } of this.inputs.values()) input.value = "";
      this.system.value = "";
      this.save();
    });
    const body = h("div", { class: "fields" }, this.systemRow, ...rows, reset);
    this.el = h("details", { class: "panel settings", open: !matchMedia("(max-width: 900px)").matches }, this.title, body);
    body.addEventListener("change", () => this.save());
    this.load();
  }

  /** Writes the server's defaults into the empty fields. */
  defaults(c: Config): void {
    for (const key of ["temperature", "top_p", "top_k", "min_p"] as const) {
      const input = this.inputs.get(key)?.input;
      if (input) input.placeholder = String(c.sampling[key]);
    }
  }

  showSystem(on: boolean): void {
    this.systemRow.hidden = !on;
  }

  setSystem(text: string): void {
    this.system.value = text;
    this.save();
  }

  /** Fields of the request body; or the line that says what is wrong, and the field is shown. */
  values(mode: Mode): Record<string, number> | string {
    const problem = this.check();
    if (problem) {
      this.el.open = true;
      problem.input.focus();
      return problem.text;
    }
    const out: Record<string, number> = mode === "text" ? { max_tokens: TEXT_TOKENS } : {};
    for (const [key, { input }] of this.inputs) if (input.value !== "") out[key] = Number(input.value);
    return out;
  }

  /** Marks the fields that are wrong, also on the closed panel, and returns the first of them. */
  private check(): { input: HTMLInputElement; text: string } | null {
    const bad: { input: HTMLInputElement; text: string }[] = [];
    for (const { field, input, hint } of this.inputs.values()) {
      const text = wrong(field, input);
      input.setAttribute("aria-invalid", String(text !== ""));
      hint.classList.toggle("error", text !== "");
      setText(hint, text || field.hint);
      if (text) bad.push({ input, text });
    }
    setText(this.title, bad.length ? `Sampling: ${bad.length} invalid` : "Sampling");
    return bad[0] ?? null;
  }

  private save(): void {
    const all: Record<string, string> = { system: this.system.value };
    for (const [key, { input }] of this.inputs) all[key] = input.value;
    tab.set("settings", JSON.stringify(all));
    this.check();
  }

  private load(): void {
    try {
      const all = JSON.parse(tab.get("settings") || "{}") as Record<string, unknown>;
      for (const [key, { input }] of this.inputs) if (typeof all[key] === "string") input.value = all[key];
      if (typeof all.system === "string") this.system.value = all.system;
    } catch {
      // not ours
    }
    this.check();
  }
}
