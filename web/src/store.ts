// store.ts - the conversations that this browser keeps, in IndexedDB.
//
// Heads (title, times) and whole conversations are two stores, so that the list is cheap. What cannot be written
// stays in memory until the page is closed, and the caller gets an error that says why.
import type { Answered } from "./answer";

export type Mode = "chat" | "text";

export interface Turn {
  prompt: string;
  answer: Answered | null;
}

export interface Head {
  id: string;
  title: string;
  /** Milliseconds since 1970. */
  created: number;
  updated: number;
}

export interface Conversation extends Head {
  mode: Mode;
  system: string;
  turns: Turn[];
}

export const MAX_CONVERSATIONS = 500;

const done = <T>(r: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    r.onsuccess = () => resolve(r.result);
    r.onerror = () => reject(r.error ?? new Error("no reason given"));
  });

class TooMany extends Error {}

/** What went wrong, for people. */
function why(e: unknown): Error {
  const isFull = e instanceof DOMException && e.name === "QuotaExceededError";
  const what = isFull ? "The storage that the browser gives this page is full" : e instanceof TooMany ? `${MAX_CONVERSATIONS} conversations are kept, and no more can be` : "";
  if (what) return new Error(`${what}. This one is lost when the page is closed: export it, or delete others to make room.`);
  return new Error(`The browser does not keep this conversation, so it is lost when the page is closed: ${e instanceof Error ? e.message : String(e)}.`);
}

export class Store {
  private db: Promise<IDBDatabase> | null = null;
  private readonly memory = new Map<string, Conversation>();
  private readonly channel = new BroadcastChannel("nibble.conversations");

  /** `changed` is called when another tab has written or deleted the conversation with this id. */
  constructor(changed: (id: string) => void) {
    this.channel.onmessage = (e) => changed(String(e.data));
  }

  private open(): Promise<IDBDatabase> {
    this.db ??= (async () => {
      const r = indexedDB.open("nibble", 1);
      r.onupgradeneeded = () => {
        r.result.createObjectStore("heads", { keyPath: "id" });
        r.result.createObjectStore("conversations", { keyPath: "id" });
      };
      return done(r);
    })();
    return this.db;
  }

  private async write(change: (heads: IDBObjectStore, all: IDBObjectStore) => void): Promise<void> {
    const tx = (await this.open()).transaction(["heads", "conversations"], "readwrite");
    const end = new Promise<void>((resolve, reject) => {
      tx.oncomplete = () => resolve();
      tx.onabort = () => reject(tx.error ?? new Error("no reason given"));
    });
    change(tx.objectStore("heads"), tx.objectStore("conversations"));
    await end;
  }

  private async read<T>(name: string, ask: (s: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    return done(ask((await this.open()).transaction(name).objectStore(name)));
  }

  /** All heads, the latest first. */
  async heads(): Promise<Head[]> {
    const kept = await this.read("heads", (s) => s.getAll() as IDBRequest<Head[]>).catch(() => []);
    const all = new Map<string, Head>([...kept, ...this.memory.values()].map((c) => [c.id, c]));
    return [...all.values()].sort((a, b) => b.updated - a.updated);
  }

  async get(id: string): Promise<Conversation | null> {
    const held = this.memory.get(id);
    if (held) return held;
    const c = await this.read("conversations", (s) => s.get(id) as IDBRequest<Conversation | undefined>).catch(() => undefined);
    return c ?? null;
  }

  /** Throws an Error for people when it could not be written. */
  async put(c: Conversation): Promise<void> {
    const { id, title, created, updated } = c;
    try {
      const known = await this.read("heads", (s) => s.getKey(id));
      if (!known && (await this.read("heads", (s) => s.count())) >= MAX_CONVERSATIONS)
        throw new TooMany();
      await this.write((heads, all) => {
        heads.put({ id, title, created, updated });
        all.put(c);
      });
      this.memory.delete(id);
      this.channel.postMessage(id);
    } catch (e) {
      this.memory.set(id, c);
      throw why(e);
    }
  }

  async delete(id: string): Promise<void> {
    this.memory.delete(id);
    await this.write((heads, all) => {
      heads.delete(id);
      all.delete(id);
    }).catch((e: unknown) => {
      throw why(e);
    });
    this.channel.postMessage(id);
  }
}
