// list.ts - the list of kept conversations: open, rename, export, delete.
import { button, h, say } from "./dom";
import type { Conversation, Head, Store } from "./store";

/** What the list asks of the chat. */
export interface Shelf {
  open(id: string): Promise<void>;
  rename(id: string, title: string): Promise<void>;
  remove(ids: string[]): Promise<void>;
}

/** Offers conversations as a file for the reader to keep. */
function download(name: string, conversations: Conversation[]): void {
  const body = { format: "nibble-conversations", version: 1, exported: new Date().toISOString(), conversations };
  const url = URL.createObjectURL(new Blob([JSON.stringify(body, null, 1)], { type: "application/json" }));
  const a = h("a", { href: url, download: `${name.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "conversation"}.json` });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export class List {
  readonly el: HTMLDetailsElement;
  private readonly rows = h("ul", { class: "talks" });
  private readonly none = h("p", { class: "hint" }, "Conversations are kept in this browser only.");
  private readonly message = h("p", { class: "error", role: "alert", hidden: true });
  private readonly foot: HTMLElement;
  private heads: Head[] = [];
  private current = "";
  private running: (id: string) => boolean = () => false;
  private renaming = false;

  constructor(
    private readonly store: Store,
    private readonly shelf: Shelf,
  ) {
    this.foot = h(
      "div",
      { class: "tools" },
      button("Export all", "Export all conversations", () => void this.save("conversations", this.heads.map((x) => x.id))),
      button("Delete all", "Delete all conversations", () => void this.remove(this.heads.map((x) => x.id), `Delete all ${this.heads.length} conversations?`)),
    );
    this.el = h("details", { class: "panel list", open: !this.isOver() }, h("summary", {}, "Conversations"), this.message, this.none, this.rows, this.foot);
  }

  /** Shows what the store has. */
  async refresh(current: string, running: (id: string) => boolean): Promise<void> {
    this.current = current;
    this.running = running;
    this.heads = await this.store.heads();
    if (!this.renaming) this.draw();
  }

  /** On narrow screens the open list lies over the conversation. */
  private isOver(): boolean {
    return matchMedia("(max-width: 1180px)").matches;
  }

  private async open(id: string): Promise<void> {
    await this.shelf.open(id);
    if (this.isOver()) this.el.open = false;
  }

  /** A line that stays until it is taken back with an empty one. */
  warn(text: string): void {
    if (this.message.textContent === text) return;
    this.message.textContent = text;
    this.message.hidden = !text;
    if (text) this.el.open = true;
  }

  private draw(): void {
    const focused = document.activeElement instanceof HTMLElement && this.rows.contains(document.activeElement) ? document.activeElement.dataset.id : "";
    this.none.hidden = this.heads.length > 0;
    this.foot.hidden = !this.heads.length;
    this.rows.replaceChildren(...this.heads.map((x) => this.row(x)));
    if (focused) this.rows.querySelector<HTMLElement>(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  }

  private row(x: Head): HTMLElement {
    const isCurrent = x.id === this.current;
    const title = h("button", { type: "button", class: "talk-title", title: `${x.title}\n${new Date(x.updated).toLocaleString()}`, "data-id": x.id, "aria-current": isCurrent && "true", onclick: () => void this.open(x.id) }, x.title);
    const row = h("li", { class: isCurrent ? "current" : "" }, title, this.running(x.id) && h("span", { class: "busy" }, "writing"));
    if (isCurrent)
      row.append(
        h(
          "div",
          { class: "tools" },
          button("Rename", `Rename ${x.title}`, () => this.rename(row, x)),
          button("Export", `Export ${x.title}`, () => void this.save(x.title, [x.id])),
          button("Delete", `Delete ${x.title}`, () => void this.remove([x.id], `Delete “${x.title}”?`)),
        ),
      );
    return row;
  }

  private rename(row: HTMLElement, x: Head): void {
    const input = h("input", { type: "text", maxlength: 120, "aria-label": "New title", value: x.title });
    const close = (): void => {
      this.renaming = false;
      this.draw();
      this.rows.querySelector<HTMLElement>(".current .talk-title")?.focus();
    };
    const form = h("form", {}, input);
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      const title = input.value.trim();
      if (title) x.title = title;
      close();
      if (title) void this.shelf.rename(x.id, title);
    });
    input.addEventListener("blur", () => this.renaming && close());
    input.addEventListener("keydown", (e) => {
      if (e.key !== "Escape") return;
      e.stopPropagation();
      close();
    });
    this.renaming = true;
    row.replaceChildren(form);
    input.select();
  }

  private async save(name: string, ids: string[]): Promise<void> {
    const all = await Promise.all(ids.map((id) => this.store.get(id)));
    download(name, all.filter((c) => c !== null));
    say(ids.length === 1 ? "Conversation exported" : `${ids.length} conversations exported`);
  }

  private async remove(ids: string[], question: string): Promise<void> {
    if (!confirm(question)) return;
    await this.shelf.remove(ids);
    say(ids.length === 1 ? "Conversation deleted" : `${ids.length} conversations deleted`);
  }
}
