import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// Stable names: the program's table of routes lists them (src/serve/page.c).
const names = {
  "ibm-plex-sans-latin-wght-normal.woff2": "sans.woff2",
  "ibm-plex-mono-latin-400-normal.woff2": "mono.woff2",
  "ibm-plex-mono-latin-500-normal.woff2": "mono-500.woff2",
  "ibm-plex-serif-latin-400-normal.woff2": "serif.woff2",
  "index.css": "app.css",
};

/** The licence of one package, word for word. */
function licence(name) {
  const dir = path.join(path.dirname(fileURLToPath(import.meta.url)), "node_modules", name);
  const { version } = JSON.parse(readFileSync(path.join(dir, "package.json"), "utf8"));
  const file = readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
  if (!file) throw new Error(`${name} has no licence file`);
  return `${name} ${version}\n\n${readFileSync(path.join(dir, file), "utf8").trim()}\n`;
}

/** Writes THIRD-PARTY.txt: the licences of every package that has a file in the bundle. */
const thirdParty = {
  name: "third-party",
  generateBundle(_, bundle) {
    const assets = Object.values(bundle).flatMap((f) => f.originalFileNames ?? []);
    const found = [...this.getModuleIds(), ...assets].map((id) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]);
    const packages = [...new Set(found.filter(Boolean))].sort();
    const source = `The page contains these works.\n\n${packages.map(licence).join(`\n${"-".repeat(72)}\n\n`)}`;
    this.emitFile({ type: "asset", fileName: "THIRD-PARTY.txt", source });
  },
};

export default defineConfig({
  base: "./",
  plugins: [thirdParty],
  build: {
    target: "es2022",
    outDir: "dist",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 900,
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "[name].js",
        assetFileNames: (a) => names[a.names[0] ?? ""] ?? (a.names[0]?.endsWith(".css") ? "app.css" : "[name][extname]"),
      },
    },
  },
  server: {
    // `npm run dev` beside a running `nibble serve`.
    proxy: { "/v1": "http://127.0.0.1:8000", "/api": "http://127.0.0.1:8000" },
  },
});
