// embed.mjs - turns the built page into a C table: node embed.mjs DIST OUT.c
//
// Each file as it is and, where that is smaller, compressed with gzip; the ETag is of its
// contents. Strings, because compilers read these quickest.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";

const [dist, out] = process.argv.slice(2);
if (!dist || !out) {
  console.error("usage: node embed.mjs DIST OUT.c");
  process.exit(2);
}

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
  ".txt": "text/plain; charset=utf-8",
};

function literal(data) {
  const lines = [];
  let line = "";
  for (const b of data) {
    let c;
    if (b === 10) c = "\\n";
    else if (b === 34 || b === 92 || b === 63) c = `\\${String.fromCharCode(b)}`;
    else if (b >= 32 && b < 127) c = String.fromCharCode(b);
    else c = `\\${b.toString(8).padStart(3, "0")}`;
    line += c;
    if (line.length > 4000) {
      lines.push(line);
      line = "";
    }
  }
  lines.push(line);
  return lines.map((l) => `    "${l}"`).join("\n");
}

const files = new Map(readdirSync(dist).map((f) => [f === "index.html" ? "/" : `/${f}`, [f, readFileSync(path.join(dist, f))]]));

const rows = [...files].sort(([a], [b]) => (a < b ? -1 : 1)).map(([url, [name, body]], k) => {
  const type = TYPES[path.extname(name)];
  if (!type) throw new Error(`no content type for ${name}`);
  const small = gzipSync(body, { level: 9 });
  const gz = small.length < body.length * 0.95 ? small : null;
  const tag = createHash("sha256").update(body).digest("hex").slice(0, 20);
  const data = `static const char body_${k}[] =\n${literal(body)};\n${gz ? `static const char gz_${k}[] =\n${literal(gz)};\n` : ""}`;
  const row =
    `    { "${url}", "${type}", "\\"${tag}\\"", "\\"${tag}z\\"", { body_${k}, ${body.length} }, ` +
    `${gz ? `{ gz_${k}, ${gz.length} }` : '{ "", 0 }'} },`;
  return { data, row };
});
writeFileSync(
  out,
  `/* page_files.c - generated from web/ by web/embed.mjs. */\n#include "serve/page.h"\n\n${rows.map((r) => r.data).join("\n")}\n` +
    `const nb_page_file nb_page_files[] = {\n${rows.map((r) => r.row).join("\n")}\n};\nconst size_t nb_page_n_files = ${rows.length};\n`,
);
