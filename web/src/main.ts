// main.ts - the frame: theme, tabs, key, and the statistics that arrive each second.
import "uplot/dist/uPlot.min.css";
import "./style.css";

import { ApiError, type Config, get, getKey, onKeyGiven, onKeyNeeded, setKey, type Stats } from "./api";
import { BlockView } from "./block";
import { CacheView } from "./cache";
import { Chat } from "./chat";
import { byId, h, say, setText } from "./dom";
import { browser } from "./storage";

const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];
const themeChanged = new EventTarget();

function setUpTheme(): void {
  const button = byId<HTMLButtonElement>("theme");
  let theme: Theme = THEMES.find((t) => t === browser.get("theme")) ?? "auto";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (): void => {
    const shown = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    document.documentElement.dataset.theme = shown;
    setText(button, `Theme: ${theme}`);
    button.setAttribute("aria-label", `Theme: ${theme}. Change`);
    themeChanged.dispatchEvent(new Event("change"));
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
    browser.set("theme", theme);
    apply();
    say(`Theme: ${theme}`);
  });
  dark.addEventListener("change", apply);
  apply();
}

interface Tab {
  name: string;
  button: HTMLElement;
  panel: HTMLElement;
  shown?: (on: boolean) => void;
}

function setUpTabs(tabs: Tab[]): void {
  const select = (tab: Tab, focus: boolean): void => {
    for (const t of tabs) {
      const on = t === tab;
      t.button.setAttribute("aria-selected", String(on));
      t.button.tabIndex = on ? 0 : -1;
      t.panel.hidden = !on;
      t.shown?.(on);
    }
    document.body.dataset.view = tab.name;
    if (focus) tab.button.focus();
    if (location.hash !== `#${tab.name}`) history.replaceState(null, "", `#${tab.name}`);
  };
  tabs.forEach((tab, i) => {
    tab.button.addEventListener("click", () => select(tab, false));
    tab.button.addEventListener("keydown", (e) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[e.key];
      const next = to === undefined ? undefined : tabs[to % tabs.length];
      if (!next) return;
      e.preventDefault();
      select(next, true);
    });
  });
  const fromHash = (): void => {
    const tab = tabs.find((t) => `#${t.name}` === location.hash) ?? tabs[0];
    if (tab) select(tab, false);
  };
  addEventListener("hashchange", fromHash);
  fromHash();
}

const live = byId("live");

function setLive(state: "ok" | "busy" | "off" | "wait", text: string): void {
  live.dataset.state = state;
  setText(live, text);
}

function setUpKey(): void {
  const bar = byId<HTMLFormElement>("key-bar");
  const input = byId<HTMLInputElement>("key");
  onKeyNeeded(() => {
    if (!bar.hidden) return;
    const text = getKey() ? "The server refused this API key" : "This server asks for an API key";
    setText(byId("key-label"), text);
    bar.hidden = false;
    say(text);
    input.focus();
  });
  bar.addEventListener("submit", (e) => {
    e.preventDefault();
    const key = input.value.trim();
    if (!key) return;
    input.value = "";
    bar.hidden = true;
    setKey(key);
  });
}

function start(): void {
  setUpTheme();
  setUpKey();
  const chat = new Chat(byId("chat"));
  const cache = new CacheView(byId("cache"));
  const block = new BlockView(byId("block"));
  const views = { chat, cache, block };
  setUpTabs([
    { name: "chat", button: byId("tab-chat"), panel: byId("chat") },
    { name: "cache", button: byId("tab-cache"), panel: byId("cache"), shown: (on) => cache.shown(on) },
    { name: "block", button: byId("tab-block"), panel: byId("block"), shown: (on) => block.shown(on) },
  ]);
  themeChanged.addEventListener("change", () => {
    cache.themed();
    block.themed();
  });
  let config: Config | null = null;
  let uptime = 0;
  let timer = 0;
  let wait = 1000;
  const tick = async (): Promise<void> => {
    clearTimeout(timer);
    try {
      if (!config) {
        config = await get<Config>("api/config");
        setText(byId("model"), `${config.name} · ${config.engine.kv_dtype} cache`);
        document.title = `${config.name} · nibble`;
        views.chat.config(config);
        views.cache.config(config);
        views.block.config(config);
      }
      if (!document.hidden) {
        const s = await get<Stats>("api/stats", AbortSignal.timeout(5000));
        if (s.uptime_s < uptime) config = null; // another server, perhaps with another model
        uptime = s.uptime_s;
        cache.stats(s);
        const busy = s.running + s.waiting;
        setLive(busy ? "busy" : "ok", busy ? `${s.running} running${s.waiting ? `, ${s.waiting} waiting` : ""}` : "idle");
      }
      wait = 1000;
    } catch (e) {
      if (e instanceof ApiError && e.status === 401) {
        setLive("off", "key needed");
        return; // until a key is given
      }
      setLive("off", e instanceof ApiError ? "no statistics" : "no connection");
      wait = Math.min(wait * 2, 15000);
    }
    timer = window.setTimeout(() => void tick(), wait);
  };
  const restart = (): void => {
    wait = 1000;
    void tick();
    cache.refresh();
    block.refresh();
  };
  onKeyGiven(restart);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) restart();
  });
  void tick();
}

try {
  start();
} catch (e) {
  byId("main").prepend(h("p", { class: "error note", role: "alert" }, `The page could not start: ${e instanceof Error ? e.message : String(e)}`));
  throw e;
}
