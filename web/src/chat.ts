// chat.ts - the chat view: the composer, the conversation it belongs to, the list of the others.
import { type Config, onKeyGiven } from "./api";
import { button, copyText, h, say, setText } from "./dom";
import { count } from "./format";
import { List } from "./list";
import { Settings } from "./settings";
import { type Conversation, type Mode, Store } from "./store";
import { tab } from "./storage";
import { type Host, Talk } from "./talk";

/** Browsers have six connections to a server; the rest of the page needs two. */
const MAX_RUNNING = 4;
/** Models with fewer parameters are for demonstrations and know stories only. */
const SMALL = 100e6;
const CURRENT = "conversation";

const SUGGESTIONS: Record<Mode, string[]> = {
  chat: ["Explain how a refrigerator works, in three steps.", "Compare tea and coffee in a table.", "Write a polite e-mail that moves a meeting to Friday.", "Write a Python function that reverses a list."],
  text: ["The three most useful inventions are", "Dear Sir or Madam,", "def fibonacci(n):", "Once upon a time"],
};
const SMALL_SUGGESTIONS: Record<Mode, string[]> = {
  chat: ["Tell me a story about a cat.", "Tell me a story about a brave little boat."],
  text: ["Once upon a time", "The old lighthouse keeper had a secret."],
};

export class Chat implements Host {
  private readonly settings = new Settings();
  private readonly store = new Store((id) => void this.changedElsewhere(id));
  private readonly list: List;
  private readonly log: HTMLElement;
  private readonly empty = h("div", { class: "empty" });
  private readonly input: HTMLTextAreaElement;
  private readonly inputLabel = h("label", { for: "prompt", class: "sr" }, "Message");
  private readonly note = h("p", { class: "error", id: "prompt-error", role: "alert", hidden: true });
  private readonly send = h("button", { type: "submit", class: "primary" }, "Send");
  private readonly halt = button("Stop", "Stop", () => this.talk.stop(), "stop");
  private readonly modes = new Map<Mode, HTMLInputElement>();
  private readonly talks = new Map<string, Talk>(); // on the screen, or running
  private talk: Talk;
  private mode: Mode = "chat";
  private cfg: Config | null = null;
  private stick = true;

  constructor(root: HTMLElement) {
    this.log = h("div", { class: "log", id: "log", role: "region", "aria-label": "Conversation", tabindex: 0 });
    let top = 0;
    this.log.addEventListener("scroll", () => {
      const isUp = this.log.scrollTop < top; // by the reader; growing text only moves down
      top = this.log.scrollTop;
      if (isUp || !this.stick) this.stick = top + this.log.clientHeight > this.log.scrollHeight - 40;
    });
    this.log.addEventListener("grown", () => this.follow());
    this.log.addEventListener("click", (e) => {
      const code = e.target instanceof Element && e.target.closest(".copy-code")?.closest(".code")?.querySelector("code");
      if (code) void copyText(code.textContent ?? "");
    });
    this.list = new List(this.store, {
      open: (id) => this.open(id),
      rename: (id, title) => this.rename(id, title),
      remove: (ids) => this.remove(ids),
    });
    this.input = h("textarea", { id: "prompt", rows: 3, "aria-describedby": "prompt-hint prompt-error" });
    const hint = h("span", { id: "prompt-hint", class: "hint keys" }, "Enter sends, Shift+Enter starts a line, Escape stops");
    const fresh = button("New", "New conversation", () => this.begin(), "quiet");
    this.halt.hidden = true;
    const form = h("form", { class: "composer" }, this.inputLabel, this.input, this.note, h("div", { class: "composer-row" }, this.modeChoice(), hint, fresh, this.halt, this.send));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      this.submit(this.input.value);
    });
    this.input.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        this.submit(this.input.value);
      }
    });
    root.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && this.talk.isRunning) {
        e.preventDefault();
        this.talk.stop();
      }
    });
    this.settings.el.addEventListener("input", () => this.complain(""));
    root.append(h("div", { class: "chat-grid" }, this.list.el, h("div", { class: "talk" }, this.log, form), this.settings.el));
    onKeyGiven(() => {
      for (const t of this.talks.values()) if (t.refused === 401) t.again();
    });
    const last = tab.get(CURRENT);
    this.talk = this.blank();
    this.show(this.talk);
    void this.open(last);
  }

  config(c: Config): void {
    this.cfg = c;
    this.settings.defaults(c);
    const chat = this.modes.get("chat");
    if (chat) chat.disabled = !c.has_template;
    if (!c.has_template && !this.talk.data.turns.length) this.talk.data.mode = "text";
    this.setMode(this.talk.data.mode);
    this.controls();
  }

  // ---- what a conversation asks for ----

  fields(mode: Mode): ReturnType<Host["fields"]> {
    const sampling = this.settings.values(mode);
    if (typeof sampling === "string") {
      this.complain(sampling);
      return null;
    }
    this.complain("");
    return { system: this.settings.system.value.trim(), sampling };
  }

  mayRun(): boolean {
    const n = [...this.talks.values()].filter((t) => t.isRunning).length;
    if (n >= MAX_RUNNING) this.complain(`${MAX_RUNNING} conversations are being answered: stop one of them, or wait.`);
    return n < MAX_RUNNING;
  }

  changed(talk: Talk): void {
    this.store.put(talk.data).then(
      () => this.list.warn(""),
      (e: unknown) => this.list.warn(e instanceof Error ? e.message : String(e)),
    ).finally(() => void this.relist());
  }

  running(talk: Talk): void {
    if (!talk.isRunning && talk !== this.talk) this.talks.delete(talk.data.id);
    void this.relist();
    if (talk !== this.talk) return;
    this.controls();
    if (!talk.isRunning && document.activeElement === document.body) this.input.focus();
  }

  private controls(): void {
    this.halt.hidden = !this.talk.isRunning;
    this.send.disabled = this.talk.isRunning || this.cfg?.has_text === false;
  }

  // ---- one conversation or another ----

  private blank(): Talk {
    const now = Date.now();
    // Not crypto.randomUUID: pages over plain HTTP do not have it.
    const id = [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join("");
    const mode = this.cfg?.has_template === false ? "text" : this.mode;
    return new Talk({ id, title: "", created: now, updated: now, mode, system: "", turns: [] }, this);
  }

  private show(talk: Talk): void {
    if (!this.talk.isRunning) this.talks.delete(this.talk.data.id);
    this.talk = talk;
    this.talks.set(talk.data.id, talk);
    tab.set(CURRENT, talk.data.id);
    this.setMode(talk.data.mode);
    if (talk.data.turns.length && talk.data.mode === "chat") this.settings.setSystem(talk.data.system);
    this.log.replaceChildren(...(talk.data.turns.length ? [talk.el] : [this.empty]));
    this.complain("");
    this.stick = true;
    this.controls();
    void this.relist();
    this.follow();
  }

  private begin(): void {
    if (this.talk.data.turns.length) this.show(this.blank());
    say("New conversation");
    this.input.focus();
  }

  private async open(id: string): Promise<void> {
    const before = this.talk;
    const known = this.talks.get(id);
    const data = known ? null : await this.store.get(id);
    const talk = known ?? (data && new Talk(data, this));
    if (!talk || talk === this.talk || this.talk !== before) return;
    this.show(talk);
    say(`Conversation: ${talk.data.title}`);
  }

  private async changedElsewhere(id: string): Promise<void> {
    const known = this.talks.get(id);
    if (known && !known.isRunning) {
      const data = await this.store.get(id);
      if (known === this.talk && !known.isRunning) return this.show(data ? new Talk(data, this) : this.blank());
    }
    void this.relist();
  }

  private async rename(id: string, title: string): Promise<void> {
    const data: Conversation | null = this.talks.get(id)?.data ?? (await this.store.get(id));
    if (!data) return;
    data.title = title;
    await this.store.put(data).catch((e: unknown) => this.list.warn(e instanceof Error ? e.message : String(e)));
    void this.relist();
  }

  private async remove(ids: string[]): Promise<void> {
    for (const id of ids) {
      this.talks.get(id)?.drop();
      this.talks.delete(id);
      await this.store.delete(id).then(
        () => this.list.warn(""),
        (e: unknown) => this.list.warn(e instanceof Error ? e.message : String(e)),
      );
    }
    if (ids.includes(this.talk.data.id)) this.show(this.blank());
    else void this.relist();
  }

  private relist(): Promise<void> {
    return this.list.refresh(this.talk.data.id, (id) => this.talks.get(id)?.isRunning === true);
  }

  // ---- the composer ----

  private submit(text: string): void {
    const prompt = this.mode === "chat" ? text.trim() : text;
    if (!prompt.trim() || this.send.disabled) return;
    if (!this.talk.ask(prompt)) {
      if (this.note.hidden) this.complain("The conversation is still being loaded: try again in a moment.");
      return;
    }
    this.input.value = "";
    this.log.replaceChildren(this.talk.el);
    this.stick = true;
    this.follow();
  }

  /** A line that says why nothing was sent; empty: takes it back. */
  private complain(text: string): void {
    setText(this.note, text);
    this.note.hidden = !text;
  }

  private modeChoice(): HTMLElement {
    const option = (mode: Mode, text: string): HTMLElement => {
      const input = h("input", { type: "radio", name: "mode", value: mode, id: `mode-${mode}` });
      input.addEventListener("change", () => {
        this.mode = mode;
        if (this.talk.data.turns.length) this.begin();
        this.talk.data.mode = mode;
        this.setMode(mode);
      });
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
    this.input.placeholder = mode === "chat" ? "Message to the model" : "Text that the model continues";
    this.send.textContent = mode === "chat" ? "Send" : "Continue";
    this.welcome();
  }

  private welcome(): void {
    const c = this.cfg;
    if (c && !c.has_text) {
      this.empty.replaceChildren(h("p", { class: "error" }, "This model was loaded without a tokenizer: it takes token ids over the API, but no text."));
      return;
    }
    const isSmall = c !== null && c.engine.n_param < SMALL;
    const isChat = this.mode === "chat";
    const suggestions = (isSmall ? SMALL_SUGGESTIONS : SUGGESTIONS)[this.mode];
    this.empty.replaceChildren(
      h("h2", {}, isChat ? "Ask the model" : "Begin a text, and the model continues it"),
      isSmall ? h("p", { class: "muted" }, `This model has only ${count(c.engine.n_param / 1e6)} million parameters: it tells short stories and knows no facts.`) : "",
      h("p", { class: "muted" }, isChat ? "Each answer shows its speed and how many tokens came from the cache." : "The text goes to the model as it is, without a chat template."),
      h("div", { class: "suggestions" }, ...suggestions.map((s) => h("button", { type: "button", class: "suggestion", onclick: () => this.submit(s) }, s))),
    );
  }

  private follow(): void {
    if (this.stick) this.log.scrollTop = this.log.scrollHeight;
  }
}
