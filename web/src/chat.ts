// chat.ts - the conversation: streaming, stop, what each answer cost.
import { ApiError, type Config, request } from "./api";
import { h, say, setText } from "./dom";
import { count, rate, seconds } from "./format";
import { Settings } from "./settings";
import { events } from "./sse";

interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}

interface Chunk {
  choices?: { text?: string; delta?: { content?: string | null }; finish_reason?: string | null }[];
  usage?: Usage | null;
  error?: { message?: string };
}

interface Message {
  role: "user" | "assistant";
  content: string;
}

type Mode = "chat" | "text";

/** Sentences of a growing text, once each, for screen readers. */
class Sentences {
  private said = 0;
  constructor(private readonly out: (s: string) => void) {}
  push(text: string, end = false): void {
    const rest = text.slice(this.said);
    let cut = end ? rest.length : -1;
    if (!end) {
      for (const m of rest.matchAll(/[.!?…]["”')]*\s/g)) cut = m.index + m[0].length;
      if (cut < 0 && rest.length > 240) cut = rest.lastIndexOf(" ");
    }
    if (cut <= 0) return;
    this.said += cut;
    const line = rest.slice(0, cut).trim();
    if (line) this.out(line);
  }
}

class Answer {
  readonly el: HTMLElement;
  readonly tools: HTMLElement;
  text = "";
  private readonly body: HTMLElement;
  private readonly foot: HTMLElement;
  private readonly node: Text;
  private readonly sentences = new Sentences(say);
  private readonly t0 = performance.now();
  private first = 0;
  private last = 0;
  private pieces = 0;
  private pending = false;

  constructor(label: string, prompt: string | null) {
    this.node = document.createTextNode("");
    this.body = h("p", { class: "text writing" }, prompt !== null && h("span", { class: "prompt" }, prompt), this.node);
    this.foot = h("dl", { class: "usage" });
    this.tools = h("div", { class: "tools" });
    this.el = h("article", { class: "message answer", "aria-label": label }, this.body, this.foot, this.tools);
  }

  add(piece: string): void {
    const now = performance.now();
    if (!this.first) this.first = now;
    this.last = now;
    this.pieces++;
    this.text += piece;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.node.data = this.text;
      this.sentences.push(this.text);
      this.el.dispatchEvent(new Event("grown", { bubbles: true }));
    });
  }

  end(usage: Usage | null, reason: string): void {
    this.node.data = this.text;
    this.sentences.push(this.text, true);
    this.body.classList.remove("writing");
    const n = usage?.completion_tokens ?? this.pieces;
    const rows: [string, string][] = [];
    if (usage) {
      rows.push(["prompt", `${count(usage.prompt_tokens ?? 0)} tokens`]);
      rows.push(["cached", count(usage.prompt_tokens_details?.cached_tokens ?? 0)]);
    }
    rows.push(["generated", `${count(n)} tokens`]);
    if (this.pieces > 1 && this.last > this.first)
      rows.push(["speed", `${rate(((n - 1) * 1000) / (this.last - this.first))} tokens/s`]);
    if (this.first) rows.push(["first token", seconds((this.first - this.t0) / 1000)]);
    rows.push(["ended", reason]);
    for (const [k, v] of rows) this.foot.append(h("div", {}, h("dt", {}, k), h("dd", {}, v)));
    say(`Answer finished: ${rows.map(([k, v]) => `${k} ${v}`).join(", ")}`);
  }

  fail(message: string): void {
    this.body.classList.remove("writing");
    this.el.insertBefore(h("p", { class: "error", role: "alert" }, message), this.foot);
  }
}

const REASONS: Record<string, string> = { stop: "end of text", length: "length limit", abort: "stopped by the server" };

export class Chat {
  private readonly settings = new Settings();
  private readonly log: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly input: HTMLTextAreaElement;
  private readonly inputLabel: HTMLElement;
  private readonly send: HTMLButtonElement;
  private readonly stop: HTMLButtonElement;
  private readonly modes = new Map<Mode, HTMLInputElement>();
  private mode: Mode = "chat";
  private model = "";
  private messages: Message[] = [];
  private abort: AbortController | null = null;
  private stick = true;

  constructor(root: HTMLElement) {
    this.empty = h("div", { class: "empty" });
    this.log = h("div", { class: "log", id: "log", role: "region", "aria-label": "Conversation", tabindex: 0 }, this.empty);
    this.log.addEventListener("scroll", () => {
      this.stick = this.log.scrollTop + this.log.clientHeight > this.log.scrollHeight - 40;
    });
    this.log.addEventListener("grown", () => this.follow());
    this.input = h("textarea", { id: "prompt", rows: 3, "aria-describedby": "prompt-hint" });
    this.inputLabel = h("label", { for: "prompt", class: "sr" }, "Message");
    this.send = h("button", { type: "submit", class: "primary" }, "Send");
    this.stop = h("button", { type: "button", class: "stop", hidden: true }, "Stop");
    const clear = h("button", { type: "button", class: "quiet" }, "Clear");
    const form = h(
      "form",
      { class: "composer" },
      this.inputLabel,
      this.input,
      h(
        "div",
        { class: "composer-row" },
        this.modeChoice(),
        h("span", { id: "prompt-hint", class: "hint keys" }, "Enter sends, Shift and Enter starts a line, Escape stops"),
        clear,
        this.stop,
        this.send,
      ),
    );
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      void this.submit();
    });
    this.input.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        void this.submit();
      }
    });
    root.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && this.abort) {
        e.preventDefault();
        this.abort.abort();
      }
    });
    this.stop.addEventListener("click", () => this.abort?.abort());
    clear.addEventListener("click", () => this.clear());
    root.append(h("div", { class: "chat-grid" }, h("div", { class: "talk" }, this.log, form), this.settings.el));
    this.setMode("chat");
  }

  config(c: Config): void {
    this.model = c.name;
    this.settings.defaults(c);
    const chat = this.modes.get("chat");
    if (chat) chat.disabled = !c.has_template;
    if (!c.has_template) this.setMode("text");
    if (!c.has_text) this.notice("This model was loaded without a tokenizer: it takes token ids over the API, but no text.");
  }

  private notice(text: string): void {
    this.empty.replaceChildren(h("p", { class: "error" }, text));
    this.send.disabled = true;
  }

  private modeChoice(): HTMLElement {
    const option = (mode: Mode, text: string): HTMLElement => {
      const input = h("input", { type: "radio", name: "mode", value: mode, id: `mode-${mode}` });
      input.addEventListener("change", () => this.setMode(mode));
      this.modes.set(mode, input);
      return h("label", { for: input.id }, input, h("span", {}, text));
    };
    return h("fieldset", { class: "segmented" }, h("legend", { class: "sr" }, "What the model gets"), option("chat", "Chat"), option("text", "Continue a text"));
  }

  private setMode(mode: Mode): void {
    this.mode = mode;
    const radio = this.modes.get(mode);
    if (radio) radio.checked = true;
    this.settings.showSystem(mode === "chat");
    setText(this.inputLabel, mode === "chat" ? "Message" : "Text to continue");
    this.input.placeholder = mode === "chat" ? "Tell me a story about a cat." : "Once upon a time";
    this.send.textContent = mode === "chat" ? "Send" : "Continue";
    if (!this.log.querySelector("article")) this.welcome();
  }

  private welcome(): void {
    const try_ = (text: string): HTMLElement => {
      const b = h("button", { type: "button", class: "suggestion" }, text);
      b.addEventListener("click", () => {
        this.input.value = text;
        void this.submit();
      });
      return b;
    };
    const chat = this.mode === "chat";
    this.empty.replaceChildren(
      h("h2", {}, chat ? "Ask for a story" : "Begin, and the model goes on"),
      h(
        "p",
        { class: "muted" },
        chat
          ? "Every answer tells what it cost: tokens computed, tokens found in the cache, speed."
          : "The text goes to the model as it is, without a chat template. What was a prompt before comes from the cache, 64 tokens at a time.",
      ),
      h(
        "div",
        { class: "suggestions" },
        ...(chat
          ? ["Tell me a story about a cat.", "Tell me a story about a brave little boat."]
          : ["Once upon a time", "The old lighthouse keeper had a secret."]
        ).map(try_),
      ),
    );
  }

  private clear(): void {
    this.abort?.abort();
    this.messages = [];
    this.log.replaceChildren(this.empty);
    this.welcome();
    say("Conversation cleared");
    this.input.focus();
  }

  private follow(): void {
    if (this.stick) this.log.scrollTop = this.log.scrollHeight;
  }

  private show(el: HTMLElement): void {
    this.empty.remove();
    this.log.append(el);
    this.stick = true;
    this.follow();
  }

  private async submit(): Promise<void> {
    const text = this.mode === "chat" ? this.input.value.trim() : this.input.value || this.input.placeholder;
    if (!text || this.abort) return;
    const sampling = this.settings.values();
    if (typeof sampling === "string") {
      say(sampling);
      return;
    }
    this.input.value = "";
    if (this.mode === "chat") await this.chat(text, sampling);
    else await this.continueText(text, sampling);
  }

  private async chat(text: string, sampling: Record<string, number>): Promise<void> {
    this.show(h("article", { class: "message user", "aria-label": "You" }, h("p", { class: "text" }, text)));
    const answer = new Answer("Model", null);
    const system = this.settings.system.value.trim();
    const turn: Message = { role: "user", content: text };
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.messages, turn];
    await this.stream(answer, "v1/chat/completions", { messages, ...sampling });
    if (answer.text) this.messages.push(turn, { role: "assistant", content: answer.text });
  }

  private async continueText(prompt: string, sampling: Record<string, number>): Promise<void> {
    const answer = new Answer("Text", prompt);
    await this.stream(answer, "v1/completions", { prompt, ...sampling });
    if (!answer.text) return;
    const more = h("button", { type: "button", class: "quiet" }, "Go on from here");
    more.addEventListener("click", () => {
      const now = this.settings.values();
      if (this.abort || typeof now === "string") return;
      more.remove();
      void this.continueText(prompt + answer.text, now);
    });
    answer.tools.append(more);
  }

  private async stream(answer: Answer, path: string, body: Record<string, unknown>): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    this.stop.hidden = false;
    this.send.disabled = true;
    this.show(answer.el);
    let usage: Usage | null = null;
    let reason = "";
    try {
      const r = await request(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ model: this.model || undefined, ...body, stream: true, stream_options: { include_usage: true } }),
        signal: abort.signal,
      });
      if (!r.body) throw new Error("the server sent no stream");
      for await (const data of events(r.body)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data) as Chunk;
        if (chunk.error) throw new Error(chunk.error.message ?? "the server reported an error");
        const choice = chunk.choices?.[0];
        const piece = choice?.delta?.content ?? choice?.text;
        if (piece) answer.add(piece);
        if (choice?.finish_reason) reason = REASONS[choice.finish_reason] ?? choice.finish_reason;
        if (chunk.usage) usage = chunk.usage;
      }
      answer.end(usage, reason || "cut off");
    } catch (e) {
      if (abort.signal.aborted) answer.end(usage, "stopped by you");
      else {
        const text = e instanceof Error ? e.message : String(e);
        answer.fail(e instanceof ApiError ? text : `The connection failed: ${text}`);
      }
    } finally {
      this.abort = null;
      this.stop.hidden = true;
      this.send.disabled = false;
      this.follow();
      if (document.activeElement === document.body) this.input.focus();
    }
  }
}
