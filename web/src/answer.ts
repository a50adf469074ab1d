// answer.ts - one answer on the screen: its text while it grows, reasoning, what it cost, what went wrong.
import { button, h, say } from "./dom";
import { count, rate, seconds } from "./format";
import type { Figures } from "./generate";
import { MarkdownView, PlainView, type TextView } from "./markdown";

/** What is kept of an answer. */
export interface Answered {
  content: string;
  reasoning: string;
  figures: Figures;
  /** What went wrong, in words; empty: nothing. */
  error: string;
}

export const nothingYet = (): Answered => ({
  content: "",
  reasoning: "",
  figures: { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, first_token_s: 0, tokens_per_s: 0, finish_reason: "" },
  error: "",
});

const REASONS: Record<string, string> = { stop: "end of text", length: "length limit", abort: "stopped by the server", user: "stopped by you", "": "interrupted" };

/** Sentences of a growing text, once each, for screen readers. */
class Sentences {
  private said = 0;

  push(text: string, end: boolean): void {
    const rest = text.slice(this.said, this.said + 2000);
    let cut = end || rest.length === 2000 ? rest.length : -1;
    if (!end) {
      for (const m of rest.matchAll(/[.!?…]["”')]*\s/g)) cut = m.index + m[0].length;
      if (cut < 0 && rest.length > 240) cut = rest.lastIndexOf(" ");
    }
    if (cut <= 0) return;
    this.said += cut;
    const line = rest.slice(0, cut).replace(/[*_`#|~]+/g, "").trim();
    if (line) say(line);
  }
}

const pause = (): Promise<void> => new Promise((done) => setTimeout(done));

export class Answer {
  readonly el: HTMLElement;
  private readonly view: TextView;
  private thoughts: PlainView | null = null;
  private readonly foot = h("dl", { class: "usage" });
  private readonly sentences = new Sentences();
  private drawing = false;
  private drawAfter = 0;
  private ended = false;

  /** `before`: in a text that is continued, the prompt; a chat has null and shows Markdown. `tools` are its buttons;
   * `again` asks for it again when it failed. */
  constructor(
    private readonly data: Answered,
    before: Node | null,
    tools: HTMLElement[],
    private readonly again: () => void,
  ) {
    this.view = before ? new PlainView(before) : new MarkdownView();
    this.el = h("article", { class: "message answer", "aria-label": before ? "Text" : "Model" }, this.view.el, this.foot, h("div", { class: "tools" }, ...tools));
  }

  /** The data have grown: they are drawn with the next frame, or later when drawing takes long. */
  grown(): void {
    this.el.classList.add("writing");
    if (this.drawing || this.ended) return;
    this.drawing = true;
    const draw = (): void => {
      this.drawing = false;
      if (this.ended) return;
      const t0 = performance.now();
      const more = this.draw(false);
      this.sentences.push(this.data.content, false);
      this.el.dispatchEvent(new Event("grown", { bubbles: true }));
      const now = performance.now();
      this.drawAfter = now + 3 * (now - t0); // at most a quarter of the time goes into drawing
      if (more) this.grown();
    };
    setTimeout(() => requestAnimationFrame(draw), this.drawAfter - performance.now());
  }

  private draw(end: boolean): boolean {
    const { content, reasoning } = this.data;
    if (reasoning && !this.thoughts) {
      this.thoughts = new PlainView();
      this.el.prepend(h("details", { class: "reasoning" }, h("summary", {}, "Reasoning"), this.thoughts.el));
    }
    const more = this.thoughts?.update(reasoning) ?? false;
    return this.view.update(content, end) || more;
  }

  /** Shows all there is, piece by piece, so that the page stays responsive. */
  async end(announce: boolean): Promise<void> {
    this.ended = true;
    while (this.draw(true)) await pause();
    this.show(announce);
    this.el.dispatchEvent(new Event("grown", { bubbles: true }));
  }

  /** Figures, or what went wrong. */
  private show(announce: boolean): void {
    this.el.classList.remove("writing");
    const { error, figures: f, content } = this.data;
    if (announce) this.sentences.push(content, true);
    if (error) {
      this.el.classList.add("failed");
      this.foot.before(h("p", { class: "error", role: announce ? "alert" : null }, error), button("Try again", "Try again", this.again, "small last-only when-idle"));
    }
    if (!f.completion_tokens && error) return;
    const rows: [string, string][] = [
      ["prompt", `${count(f.prompt_tokens)} tokens`],
      ["cached", count(f.cached_tokens)],
      ["generated", `${count(f.completion_tokens)} tokens`],
    ];
    if (f.tokens_per_s) rows.push(["speed", `${rate(f.tokens_per_s)} tokens/s`]);
    rows.push(["first token", seconds(f.first_token_s)]);
    if (!error) rows.push(["ended", REASONS[f.finish_reason] ?? f.finish_reason]);
    this.foot.replaceChildren(...rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
    if (announce) say(`Answer finished: ${rows.map(([k, v]) => `${k} ${v}`).join(", ")}`);
  }
}
