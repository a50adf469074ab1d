// generate.ts - one request that streams its answer, and what went wrong in words.
import { ApiError, request } from "./api";
import { events } from "./sse";

interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}

interface Chunk {
  choices?: {
    text?: string;
    delta?: { content?: string | null; reasoning_content?: string | null; reasoning?: string | null };
    finish_reason?: string | null;
  }[];
  usage?: Usage | null;
  error?: { message?: string };
}

/** What an answer cost; times are the browser's. */
export interface Figures {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  /** From sending the request to the first token. */
  first_token_s: number;
  /** Of the tokens after the first; 0: fewer than two. */
  tokens_per_s: number;
  finish_reason: string;
}

export type OnPiece = (content: string, reasoning: string) => void;

/** The stream ended without a reason: the server stopped, or something between cut it. */
export class CutOff extends Error {}

/**
 * Sends a request and calls `onPiece` with what arrives. `figures` is filled while it runs, so that they are right
 * when it is aborted too. Throws ApiError, CutOff, or what fetch throws.
 */
export async function generate(path: string, body: Record<string, unknown>, signal: AbortSignal, onPiece: OnPiece, figures: Figures): Promise<void> {
  const t0 = performance.now();
  let first = 0;
  const r = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } }),
    signal,
  });
  if (!r.body) throw new CutOff();
  for await (const data of events(r.body)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new ApiError(500, chunk.error.message ?? "no reason given");
    if (chunk.usage) {
      figures.prompt_tokens = chunk.usage.prompt_tokens ?? 0;
      figures.cached_tokens = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
      figures.completion_tokens = chunk.usage.completion_tokens ?? 0;
    }
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    const now = performance.now();
    first ||= now;
    figures.first_token_s = (first - t0) / 1000;
    if (now > first) figures.tokens_per_s = (Math.max(0, figures.completion_tokens - 1) * 1000) / (now - first);
    const content = choice.delta?.content ?? choice.text ?? "";
    const reasoning = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
    if (content || reasoning) onPiece(content, reasoning);
    if (choice.finish_reason) figures.finish_reason = choice.finish_reason;
  }
  if (!figures.finish_reason) throw new CutOff();
}

/** A line for people: what happened and what they can do. */
export function inWords(e: unknown): string {
  if (e instanceof CutOff) return "The stream ended before the answer did: the server was stopped, or the connection was cut.";
  if (!(e instanceof ApiError)) return `The server cannot be reached: ${e instanceof Error ? e.message : String(e)}.`;
  if (e.status === 401) return `The server wants an API key, or does not know the one it got: ${e.message}. Enter the key above.`;
  if (e.status === 429 || e.status === 503) return `The server is too busy or is stopping: ${e.message}. Try again${e.retryAfter ? ` in ${e.retryAfter} s` : " later"}.`;
  if (e.status < 500) return `The server refused the request: ${e.message}.`;
  return `The server failed: ${e.message}.`;
}
