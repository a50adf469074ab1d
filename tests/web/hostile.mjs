// hostile.mjs - texts that a model may write: a document with everything in it, texts that want to run something,
// texts that are bad for parsers, and a long answer.

export const DOCUMENT = `# A heading

Some **bold**, *slanted*, ~~gone~~ and \`code\`, a [link](https://example.com/a "title") and https://example.com/b?c=1.
The next line.

1. one
2. two
   - inner
   - more

> a quote

| tea | coffee | price |
|:----|:------:|------:|
| green | black | 1 |

\`\`\`python
def f(x):
    return x[::-1] # ${"long ".repeat(40)}
\`\`\`

![a picture](https://example.com/x.png)

---

${"unbroken".repeat(60)}
`;

/** Texts that would run something, load something or imitate the page where markup counted. */
const ACTIVE = [
  "<script>boom()</script>", "<img src=x onerror=boom()>", "<svg/onload=boom()>", "<iframe src=javascript:boom()></iframe>",
  "<a href='javascript:boom()'>x</a>", "<style>*{display:none}</style>", "<form action=//example.com><button id=theme>x</button></form>",
  "<math><mi xlink:href='data:x,<script>boom()</script>'></math>", "<details open ontoggle=boom()>", "<!--<img src='--><img src=x onerror=boom()>'>",
  "[x](javascript:boom())", "[x](JaVaScRiPt:boom())", "[x](java&#10;script:boom())", "[x](&#106;avascript:boom())", "[x](\u0001javascript:boom())",
  "[x](data:text/html,<script>boom()</script>)", "[x](vbscript:boom())", "[x](file:///etc/passwd)", "[x](//example.com)", "[x](/reset_prefix_cache)",
  "<javascript:boom()>", "<https://example.com/\"onmouseover=boom()>", "[x](https://example.com/\"onmouseover=\"boom())", "[x](https://e.com 'a\" onclick=\"boom()')",
  "![x](javascript:boom())", "![x](https://example.com/pixel.png)", "![<img src=x onerror=boom()>](x)", "[![x](https://example.com/y.png)](javascript:boom())",
  "```\"><img src=x onerror=boom()>\n</code><script>boom()</script>\n```", "`</code><script>boom()</script>`", "| <script>boom()</script> |\n|-|\n| <img src=x onerror=boom()> |",
  "[x]: javascript:boom()\n\n[x]", "&lt;script&gt;boom()&lt;/script&gt;", "\u0000<script>boom()</script>", "</div></article><script>boom()</script>",
].map((text, i) => `Text ${i}\n\n${text}\n\nend\n\n`).join("");

const fill = (text, n) => text.repeat(Math.ceil(n / text.length)).slice(0, n);
const deepList = Array.from({ length: 700 }, (_, i) => `${"  ".repeat(i)}- ${i}\n`).join("");

/** name: text. Each is to be shown whole, quickly, without an element that Markdown does not make. */
export const HOSTILE = {
  "texts that want to run": ACTIVE,
  "1 MB of backticks": fill("`", 1 << 20),
  "backticks in growing runs": Array.from({ length: 400 }, (_, i) => `${"`".repeat(i)} `).join(""),
  "an open fence": `before\n\n\`\`\`js\n${fill("let x = 1; // text\n", 200_000)}last line`,
  "an open table": `| a | b |\n|---|---|\n${fill("| 1 | 2 |\n", 60_000)}| last`,
  "a table of 5,000 columns": `${fill("|a", 10_000)}\n${fill("|-", 10_000)}\n${fill("|b\n", 300)}end`,
  "quotes in quotes": `${"> ".repeat(10_000)}deep\n\nafter`,
  "quotes of growing depth": `${Array.from({ length: 300 }, (_, i) => `${">".repeat(i)} ${i}\n`).join("")}\nafter`,
  "lists in lists": `${deepList}\nafter`,
  "list markers in one line": `${"- ".repeat(20_000)}x\n\nafter`,
  "open brackets": fill("[", 100_000),
  "open links": fill("[a](b", 60_000),
  "images in images": fill("![", 60_000),
  "stars": fill("*a **a ", 100_000),
  "tildes, underscores": fill("~~a _b __c ", 60_000),
  "angle brackets": fill("<a <!-- <? <![CDATA[ ", 60_000),
  "entities": fill("&amp;&#0;&#x10FFFF;&nbsp;&", 60_000),
  "addresses": fill("http://a.b/(mailto:x@y.zhttps://", 60_000),
  "empty lines": `first${fill("\n", 200_000)}last`,
  "empty headings": fill("#\n", 40_000),
  "one word of 300,000 letters": fill("w", 300_000),
  "marks of direction and joiners": fill("\u202e\u200d\u0301e\ud83d\udc69\u200d", 30_000),
};

const PARAGRAPH = "The **quick** brown fox jumps over the `lazy` dog, and [nobody](https://example.com) minds; it was a *slow* day. ";
const SECTION = `## Part N\n\n${PARAGRAPH.repeat(3)}\n\n- ${PARAGRAPH}\n- second\n  1. inner\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n\`\`\`c\nint main(void) { return 0; }\n\`\`\`\n\n`;

/** Markdown of n tokens of about four characters. */
export const longAnswer = (n) => Array.from({ length: Math.ceil((4 * n) / SECTION.length) }, (_, i) => SECTION.replace("N", String(i))).join("").slice(0, 4 * n);
