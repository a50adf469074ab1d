// markdown.ts - text of a model as elements.
//
// The parser yields tokens, and the elements are made here, so HTML is never parsed: markup in the text is
// shown as text, and the server's policy (trusted-types 'none') can stay. Images are not loaded; links are
// http, https or mailto. Parsing is incremental: a block that cannot change any more is not parsed again.
import MarkdownIt, { type Token } from "markdown-it";
import { h } from "./dom";

/** Characters parsed at a time. A longer block is cut, so the work per update has a limit. */
const MAX_SLICE = 32_768;
/** Lists and quotes nested deeper, blocks of more tokens, code between longer fences: shown as they were written. */
const MAX_DEPTH = 24;
const MAX_TOKENS = 30_000;
const MAX_FENCE = 100;
/** Kerning takes time that grows with the square of a word's length. */
const LONG_WORD = /\S{2000}/;
const NEWLINE = /\r\n?|\n/g;

// Reference links are off: their definitions may come long after the blocks that use them were shown.
const parser = new MarkdownIt({ html: false, linkify: true, maxNesting: MAX_DEPTH }).disable("reference");
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

const TAGS: Record<string, keyof HTMLElementTagNameMap> = {
  paragraph_open: "p",
  blockquote_open: "blockquote",
  bullet_list_open: "ul",
  ordered_list_open: "ol",
  list_item_open: "li",
  thead_open: "thead",
  tbody_open: "tbody",
  tr_open: "tr",
  th_open: "th",
  td_open: "td",
  em_open: "em",
  strong_open: "strong",
  s_open: "s",
};

const attribute = (t: Token, name: string): string => String(t.attrs?.find(([key]) => key === name)?.[1] ?? "");

function link(href: string, ...children: (Node | string)[]): HTMLElement | null {
  let protocol = "";
  try {
    protocol = new URL(href).protocol;
  } catch {
    // relative, or no address at all
  }
  if (!["http:", "https:", "mailto:"].includes(protocol)) return null;
  return h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

function codeBlock(code: string, info: string): HTMLElement {
  const name = info.trim().split(/\s/)[0]?.slice(0, 40) ?? "";
  return h(
    "div",
    { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, name || "code"), h("button", { type: "button", class: "quiet small copy-code", "aria-label": "Copy code" }, "Copy")),
    h("pre", { tabindex: 0, role: "group", "aria-label": name ? `Code, ${name}` : "Code" }, h("code", {}, code)),
  );
}

/** Appends the element that a token opens and returns the node that takes its children. */
function open(at: Node, t: Token): Node {
  if (t.hidden) return at; // paragraph of a tight list
  let el: HTMLElement | null = null;
  if (t.type === "link_open") el = link(attribute(t, "href"));
  else if (t.type === "heading_open") el = h(`h${Math.min(6, Number(t.tag[1]) + 2)}` as "h3");
  else if (t.type === "table_open") {
    el = h("table");
    at.appendChild(h("div", { class: "md-table", tabindex: 0, role: "group", "aria-label": "Table" }, el));
    return el;
  } else {
    const tag = TAGS[t.type];
    if (tag) el = h(tag);
  }
  if (!el) return at;
  const start = attribute(t, "start");
  if (start) el.setAttribute("start", start);
  const align = /text-align:(left|center|right)/.exec(attribute(t, "style"))?.[1];
  if (align) el.className = align;
  at.appendChild(el);
  return el;
}

function leaf(at: Node, t: Token): void {
  if (t.type === "inline") fill(at, t.children ?? []);
  else if (t.type === "softbreak" || t.type === "hardbreak") at.appendChild(h("br"));
  else if (t.type === "code_inline") at.appendChild(h("code", {}, t.content));
  else if (t.type === "fence" || t.type === "code_block") at.appendChild(codeBlock(t.content, t.info));
  else if (t.type === "hr") at.appendChild(h("hr"));
  else if (t.type === "image") {
    const text = `image: ${t.content || "no description"}`;
    at.appendChild(link(attribute(t, "src"), text) ?? new Text(text));
  } else if (t.content) at.appendChild(new Text(t.content));
}

function fill(root: Node, tokens: Token[]): void {
  const path = [root];
  for (const t of tokens) {
    const at = path.at(-1) ?? root;
    if (t.nesting > 0) path.push(open(at, t));
    else if (t.nesting < 0) path.pop();
    else leaf(at, t);
  }
}

interface Block {
  el: HTMLElement;
  /** Its first line, counted from 0. */
  line: number;
  /** The first token, which says what kind of block it is. */
  token: Token;
}

/** The blocks of the outermost level, each with its element. */
function blocksOf(source: string): Block[] {
  const tokens = parser.parse(source, {});
  const blocks: Block[] = [];
  for (let from = 0, to = 0; from < tokens.length; from = to) {
    const token = tokens[from];
    if (!token) break;
    to = from + 1;
    if (token.nesting > 0) {
      while ((tokens[to]?.level ?? 0) > 0) to++;
      to++; // the token that closes the block
    }
    const own = tokens.slice(from, to);
    const [line, end] = token.map ?? [0, 0];
    const box = document.createDocumentFragment();
    if (own.length > MAX_TOKENS || token.markup.length > MAX_FENCE || own.some((t) => t.level >= MAX_DEPTH - 1))
      box.append(h("p", { class: "plain" }, source.split(NEWLINE).slice(line, end).join("\n")));
    else fill(box, own);
    const el = box.firstElementChild as HTMLElement | null;
    if (!el) continue;
    el.dir = "auto";
    if (LONG_WORD.test(el.textContent ?? "")) el.classList.add("long-word");
    blocks.push({ el, line, token });
  }
  return blocks;
}

/** Where line n begins. */
function lineStart(source: string, n: number): number {
  NEWLINE.lastIndex = 0;
  while (n-- > 0) if (!NEWLINE.exec(source)) return source.length;
  return NEWLINE.lastIndex;
}

/** Makes the children of `parent` from number `from` on equal to `fresh`, keeping the nodes that are. */
function patch(parent: Node, from: number, fresh: Node[]): void {
  fresh.forEach((node, i) => {
    const old = parent.childNodes[from + i];
    if (!old) parent.appendChild(node);
    else if (!old.isEqualNode(node)) merge(old, node);
  });
  while (parent.childNodes.length > from + fresh.length) parent.lastChild?.remove();
}

function merge(old: ChildNode, fresh: Node): void {
  if (old instanceof Text && fresh instanceof Text) {
    if (fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.length));
    else old.data = fresh.data;
  } else if (old instanceof Element && old.cloneNode(false).isEqualNode(fresh.cloneNode(false))) patch(old, 0, [...fresh.childNodes]);
  else old.replaceWith(fresh);
}

/** Does the last line of a code block close it? */
function closes(block: string, markup: string): boolean {
  const last = block.trimEnd().split(NEWLINE).at(-1)?.trim() ?? "";
  return last.startsWith(markup) && last === markup.charAt(0).repeat(last.length);
}

/** A text that grows, as elements. */
export interface TextView {
  readonly el: HTMLElement;
  /** Shows `text`, which begins with what was shown before; `end`: it will not grow any more. Returns true when
   * there is more to show than one call does. */
  update(text: string, end: boolean): boolean;
}

export class MarkdownView implements TextView {
  readonly el = h("div", { class: "text md" });
  private done = 0; // characters whose blocks are final
  private fixed = 0; // elements of those
  private fence = ""; // the line that opens a code block of which a part is final

  update(text: string, end: boolean): boolean {
    const source = this.fence + text.slice(this.done, this.done + MAX_SLICE);
    const more = this.done + MAX_SLICE < text.length;
    const blocks = blocksOf(source);
    patch(this.el, this.fixed, blocks.map((b) => b.el));
    if (end && !more) return false;
    // A later line can change the last block, and the rest of the last line can also join it to the one before.
    const lastLine = source.match(NEWLINE)?.length ?? 0;
    let keep = blocks.length - 1;
    if (keep > 0 && blocks[keep]?.line === lastLine) keep--;
    if (keep > 0) this.settle(keep, lineStart(source, blocks[keep]?.line ?? 0), "");
    else if (more) this.cut(source);
    return more;
  }

  /** The first n blocks, `length` characters of the source, are final. */
  private settle(n: number, length: number, fence: string): void {
    this.done += length - this.fence.length;
    this.fixed += n;
    this.fence = fence;
  }

  /** One block fills the slice: shows it up to its last complete line; the rest becomes the next block. */
  private cut(source: string): void {
    let length = Math.max(source.lastIndexOf("\n"), source.lastIndexOf("\r")) + 1;
    if (length <= MAX_SLICE / 2) length = /[\uD800-\uDBFF]$/.test(source) ? source.length - 1 : source.length;
    const part = source.slice(0, length);
    const blocks = blocksOf(part);
    patch(this.el, this.fixed, blocks.map((b) => b.el));
    const token = blocks[0]?.token;
    const opening = part.slice(0, lineStart(part, 1));
    const goesOn = token?.type === "fence" && blocks.length === 1 && opening.length < 2 * MAX_FENCE && !closes(part, token.markup);
    this.settle(blocks.length, length, goesOn ? opening : "");
  }
}

/** Text as it is: what continues a prompt, reasoning. */
export class PlainView implements TextView {
  readonly el = h("div", { class: "text plain" });
  private shown = 0;
  private node: Text;

  constructor(...before: (Node | string)[]) {
    this.node = new Text();
    this.el.append(h("div", {}, ...before, this.node));
  }

  update(text: string): boolean {
    let rest = text.slice(this.shown, this.shown + MAX_SLICE);
    this.shown += rest.length;
    // Short elements, since the browser lays out an element that changed as a whole.
    if (this.node.length > 2000) {
      const at = rest.indexOf("\n");
      if (at >= 0 || this.node.length > MAX_SLICE) {
        this.node.appendData(rest.slice(0, Math.max(at, 0)));
        rest = rest.slice(at + 1);
        this.node = new Text();
        this.el.append(h("div", {}, this.node));
      }
    }
    this.node.appendData(rest);
    if (LONG_WORD.test(this.node.data)) this.node.parentElement?.classList.add("long-word");
    return this.shown < text.length;
  }
}
