import { defineConfig } from "vite";

// Stable names: the program's table of routes lists them (src/serve/page.c).
const names: Record<string, string> = {
  "ibm-plex-sans-latin-wght-normal.woff2": "sans.woff2",
  "ibm-plex-mono-latin-400-normal.woff2": "mono.woff2",
  "ibm-plex-mono-latin-500-normal.woff2": "mono-500.woff2",
  "ibm-plex-serif-latin-400-normal.woff2": "serif.woff2",
  "index.css": "app.css",
};

export default defineConfig({
  base: "./",
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
