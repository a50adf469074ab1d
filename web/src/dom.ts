// dom.ts - making elements. Text goes in as text nodes only: nothing here parses HTML.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") {
      el.addEventListener(key.slice(2), value as EventListener);
    } else if (key === "class") {
      el.className = String(value);
    } else if (key === "style") {
      for (const [name, v] of Object.entries(value as Record<string, string>)) el.style.setProperty(name, v);
    } else if (value === true) {
      el.setAttribute(key, "");
    } else {
      el.setAttribute(key, String(value));
    }
  }
  el.append(...children.filter((c): c is Node | string | number => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const el = document.getElementById(id);
  if (!el) throw new Error(`no element #${id}`);
  return el as T;
}

/** The text of an element, written only when it changes. */
export function setText(el: Element, text: string): void {
  if (el.textContent !== text) el.textContent = text;
}

/** Says a line to screen readers. */
export function say(text: string): void {
  const log = byId("say");
  log.append(h("p", {}, text));
  while (log.childElementCount > 4) log.firstElementChild?.remove();
}

export function button(text: string, label: string, onclick: () => void, kind = "quiet small"): HTMLButtonElement {
  return h("button", { type: "button", class: kind, "aria-label": label, onclick }, text);
}

/** Puts a text on the clipboard; says so, or why not. */
export async function copyText(text: string): Promise<void> {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelected(text);
    say("Copied");
  } catch {
    say("The browser does not let the page copy");
  }
}

/** For pages over plain HTTP from another host, which have no navigator.clipboard. */
function copySelected(text: string): void {
  const focused = document.activeElement;
  const box = h("textarea", { class: "sr", readonly: true, "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!done) throw new Error("refused");
}

/** A small table: heads, then rows; the first cell of a row is its header. */
export function table(caption: string, heads: string[], rows: Child[][]): HTMLTableElement {
  return h(
    "table",
    {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...heads.map((t) => h("th", { scope: "col" }, t)))),
    h(
      "tbody",
      {},
      ...rows.map((r) => h("tr", {}, ...r.map((c, i) => (i === 0 ? h("th", { scope: "row" }, c) : h("td", {}, c))))),
    ),
  );
}

/** Colours of the theme as the style sheet has them now. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A canvas in device pixels for its box; returns its context scaled to CSS pixels. */
export function fit(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const dpr = Math.min(window.devicePixelRatio || 1, 2);
  const w = Math.max(1, Math.round(width * dpr));
  const hgt = Math.max(1, Math.round(height * dpr));
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== hgt) canvas.height = hgt;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const c = canvas.getContext("2d");
  c?.setTransform(dpr, 0, 0, dpr, 0, 0);
  return c;
}
