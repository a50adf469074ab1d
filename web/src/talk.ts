// talk.ts - one conversation: its turns on the screen, and the request that runs for it.
import { Answer, type Answered, nothingYet } from "./answer";
import { ApiError } from "./api";
import { button, copyText, h } from "./dom";
import { count } from "./format";
import { generate, inWords } from "./generate";
import type { Conversation, Turn } from "./store";

/** Longer prompts are shown in part until they are asked for. */
const LONG = 20_000;
const SAVE_EVERY_MS = 5000;

/** What a conversation needs of the page. */
export interface Host {
  /** Fields of the request, or null after saying what is wrong with them. */
  fields(mode: Conversation["mode"]): { system: string; sampling: Record<string, number> } | null;
  /** May one more request run? Says so if not. */
  mayRun(): boolean;
  /** The conversation has changed and wants to be kept. */
  changed(talk: Talk): void;
  /** A request began or ended. */
  running(talk: Talk): void;
}

function promptText(prompt: string): HTMLElement {
  if (prompt.length <= LONG) return h("span", {}, prompt);
  const el = h("span", {}, prompt.slice(0, LONG / 2), "… ");
  el.append(button(`Show all ${count(prompt.length)} characters`, `Show all ${count(prompt.length)} characters`, () => el.replaceChildren(prompt)));
  return el;
}

export class Talk {
  readonly el = h("div", { class: "turns" });
  /** Status of the last request where the server refused it. */
  refused = 0;
  private abort: AbortController | null = null;
  private gone = false;
  private loading = true;

  constructor(
    readonly data: Conversation,
    private readonly host: Host,
  ) {
    void this.showAll();
  }

  get isRunning(): boolean {
    return this.abort !== null;
  }

  stop(): void {
    this.abort?.abort();
  }

  /** Stops it; nothing is kept any more. */
  drop(): void {
    this.gone = true;
    this.stop();
  }

  /** Sends a prompt; false: it cannot be sent now, and the host has said why. */
  ask(prompt: string): boolean {
    const fields = this.ready();
    if (!fields) return false;
    this.data.title ||= prompt.trim().replace(/\s+/g, " ").slice(0, 60).trim() || "Untitled";
    this.data.turns.push({ prompt, answer: null });
    void this.run(fields);
    return true;
  }

  /** Asks for the last answer again. */
  again(): void {
    const fields = this.ready();
    if (fields) void this.run(fields);
  }

  /** Another prompt for turn i; the turns after it go. */
  private edit(i: number, prompt: string): void {
    const fields = this.ready();
    if (!fields) return;
    this.data.turns.splice(i, Infinity, { prompt, answer: null });
    while (this.el.childElementCount > i) this.el.lastElementChild?.remove();
    void this.run(fields);
  }

  private ready(): ReturnType<Host["fields"]> {
    return this.loading || this.isRunning || !this.host.mayRun() ? null : this.host.fields(this.data.mode);
  }

  private async showAll(): Promise<void> {
    for (const [i, turn] of [...this.data.turns].entries()) {
      const answer = this.show(i, turn, turn.answer);
      await answer?.end(false);
    }
    this.loading = false;
  }

  /** Shows turn i in its place; returns its answer's element. */
  private show(i: number, turn: Turn, data: Answered | null): Answer | null {
    const isText = this.data.mode === "text";
    const prompt = promptText(turn.prompt);
    prompt.className = "prompt";
    const box = h("div", { class: "turn" });
    const copy = (what: string, text: () => string): HTMLElement => button("Copy", `Copy ${what}`, () => void copyText(text()));
    const edit = button("Edit", isText ? "Edit the prompt" : "Edit message", () => this.openEditor(box, i, turn.prompt));
    edit.classList.add("when-idle");
    if (!isText)
      box.append(h("article", { class: "message user", "aria-label": "You" }, h("p", { class: "text plain", dir: "auto" }, prompt)), h("div", { class: "tools of-user" }, copy("message", () => turn.prompt), edit));
    let answer: Answer | null = null;
    if (data) {
      const again = button("Regenerate", "Regenerate answer", () => this.again(), "quiet small regenerate last-only when-idle");
      const goOn = button("Go on from here", "Go on from here", () => this.ask(turn.prompt + data.content), "quiet small last-only when-idle");
      const tools = [copy("answer", () => (isText ? turn.prompt + data.content : data.content)), again, ...(isText ? [edit, goOn] : [])];
      answer = new Answer(data, isText ? prompt : null, tools, () => this.again());
      box.append(answer.el);
    }
    const old = this.el.children[i];
    if (old) old.replaceWith(box);
    else this.el.append(box);
    return answer;
  }

  private openEditor(box: HTMLElement, i: number, prompt: string): void {
    if (this.isRunning) return;
    const later = this.data.turns.length - 1 - i;
    const input = h("textarea", { rows: 4, "aria-label": "Edited message" });
    input.value = prompt;
    const close = (): void => {
      form.remove();
      box.classList.remove("editing");
      box.querySelector<HTMLElement>(".tools button")?.focus();
    };
    const form = h(
      "form",
      { class: "editor" },
      input,
      later > 0 && h("p", { class: "hint" }, `Sending removes ${later === 1 ? "the later message" : `the ${later} later messages`} and their answers.`),
      h("div", { class: "tools of-user" }, button("Cancel", "Cancel", close, "small"), h("button", { type: "submit", class: "small primary" }, "Send")),
    );
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (input.value.trim()) this.edit(i, this.data.mode === "chat" ? input.value.trim() : input.value);
    });
    form.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing && e.target === input) {
        e.preventDefault();
        form.requestSubmit();
      } else if (e.key === "Escape") {
        e.stopPropagation();
        close();
      }
    });
    box.classList.add("editing");
    box.prepend(form);
    input.focus();
  }

  private body(i: number): Record<string, unknown> {
    const prompt = this.data.turns[i]?.prompt ?? "";
    if (this.data.mode === "text") return { prompt };
    const messages: { role: string; content: string }[] = this.data.system ? [{ role: "system", content: this.data.system }] : [];
    for (const t of this.data.turns.slice(0, i)) {
      if (!t.answer?.content) continue; // failed: templates want messages in pairs
      messages.push({ role: "user", content: t.prompt }, { role: "assistant", content: t.answer.content });
    }
    return { messages: [...messages, { role: "user", content: prompt }] };
  }

  /** Runs the last turn. */
  private async run(fields: { system: string; sampling: Record<string, number> }): Promise<void> {
    const i = this.data.turns.length - 1;
    const turn = this.data.turns[i];
    if (!turn) return;
    const data = nothingYet();
    turn.answer = data;
    this.data.system = this.data.mode === "chat" ? fields.system : "";
    const abort = new AbortController();
    this.abort = abort;
    this.refused = 0;
    const answer = this.show(i, turn, data);
    answer?.grown();
    this.el.classList.add("running");
    this.save();
    this.host.running(this);
    const timer = setInterval(() => this.save(), SAVE_EVERY_MS);
    try {
      const path = this.data.mode === "chat" ? "v1/chat/completions" : "v1/completions";
      await generate(path, { ...this.body(i), ...fields.sampling }, abort.signal, (content, reasoning) => {
        data.content += content;
        data.reasoning += reasoning;
        answer?.grown();
      }, data.figures);
    } catch (e) {
      if (abort.signal.aborted) data.figures.finish_reason = "user";
      else {
        data.error = inWords(e);
        if (e instanceof ApiError) this.refused = e.status;
      }
    }
    clearInterval(timer);
    await answer?.end(true);
    this.abort = null;
    this.el.classList.remove("running");
    this.save();
    this.host.running(this);
  }

  private save(): void {
    if (this.gone) return;
    this.data.updated = Date.now();
    this.host.changed(this);
  }
}
