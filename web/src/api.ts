// api.ts - what the server says: shapes of its answers (docs/serving-page.md), the key, requests.
import { tab } from "./storage";

export interface Stats {
  uptime_s: number;
  running: number;
  waiting: number;
  deferred: number;
  waiting_tokens: number;
  blocks: { all: number; free: number; held: number; once: number; many: number };
  prefix_queries: number;
  prefix_hits: number;
  evicted: number;
  preempted: number;
  prompt_tokens: number;
  prompt_tokens_cached: number;
  generated_tokens: number;
  steps: number;
  step_s: number;
  nonfinite: number;
}

export interface Compared {
  name: string;
  label: string;
  note: string;
  bytes_per_token: number;
  served: boolean;
}

export interface Config {
  name: string;
  version: string;
  has_text: boolean;
  has_template: boolean;
  sampling: { temperature: number; top_p: number; top_k: number; min_p: number };
  engine: {
    family: string;
    kv_dtype: string;
    kv_layout: string;
    weights: string;
    n_param: number;
    n_layer: number;
    max_model_len: number;
    max_num_seqs: number;
    kv_bytes_per_tok: number;
    n_block: number;
    block_tok: number;
    block_bytes: number;
    kernels: string;
  };
  compare: Compared[];
}

export interface CacheRequest {
  id: number;
  prompt_tokens: number;
  tokens: number;
  computed: number;
  cached: number;
  n_blocks: number;
  /** Blocks in order of position: first id, how many, first id, how many, ... */
  runs: number[];
}

export interface CacheAnswer {
  n_block: number;
  block_tok: number;
  block_bytes: number;
  kv_dtype: string;
  /** One character for each block: . free, h held, 1 cached once, m cached and found again. */
  state: string;
  /** For the blocks that are not free, in order: parent as a difference of ids (0: none). */
  parent: number[];
  holders: number[];
  hits: number[];
  /** Eight hexadecimal digits of the key each; 00000000: not findable. */
  keys: string;
  requests: CacheRequest[];
  requests_left_out: number;
}

export interface PageSegment {
  fmt: string;
  code_bits: number;
  codes: number[];
  /** Values that share one block scale; 0: there are none. */
  group: number;
  scales: number[];
  scale_bytes: number[];
  outer: number[];
  outer_bytes: number[];
}

export interface PageRecord {
  dtype: string;
  bytes_per_token: number;
  page_bytes: number;
  rmse_token: number;
  rmse_page: number;
  max_error_token: number;
  decoded: number[];
  /** base64 of int8 [n_tok][plane_values]; value = amax * b / 127 */
  plane: string;
  segments: PageSegment[];
}

export interface PageAnswer {
  request: number;
  running: boolean;
  layer: number;
  n_layer: number;
  pos0: number;
  n_tok: number;
  tok: number;
  n_values: number;
  plane_values: number;
  segments: { name: string; n_vec: number; dim: number }[];
  tokens: { id: number; text: string | null }[];
  amax: number;
  values: number[];
  records: PageRecord[];
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** Seconds that the server asks to wait, or 0. */
    readonly retryAfter = 0,
  ) {
    super(message.replace(/\.$/, ""));
  }
}

const keyEvents = new EventTarget();

/** The server refused a request for want of a key; a key was given. */
export const onKeyNeeded = (fn: () => void): void => keyEvents.addEventListener("need", fn);
export const onKeyGiven = (fn: () => void): void => keyEvents.addEventListener("given", fn);

export const getKey = (): string => tab.get("key");

export function setKey(key: string): void {
  tab.set("key", key);
  keyEvents.dispatchEvent(new Event("given"));
}

async function failure(r: Response): Promise<ApiError> {
  let text = `${r.status} ${r.statusText}`;
  try {
    const body: unknown = await r.json();
    const message = (body as { error?: { message?: unknown } }).error?.message;
    if (typeof message === "string") text = message;
  } catch {
    // not JSON: the status line has to do
  }
  if (r.status === 401) keyEvents.dispatchEvent(new Event("need"));
  return new ApiError(r.status, text, Number(r.headers.get("Retry-After")) || 0);
}

/** A request with the key; anything but 2xx throws an ApiError with the server's words. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = getKey();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const r = await fetch(path, { ...init, headers });
  if (!r.ok) throw await failure(r);
  return r;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const r = await request(path, signal ? { signal } : {});
  return (await r.json()) as T;
}
