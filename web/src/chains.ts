// chains.ts - the prefix tree out of the blocks' parents: runs of blocks without a branch.
import type { CacheAnswer, CacheRequest } from "./api";
import { type State, stateOf } from "./grid";

export interface Block {
  id: number;
  state: State;
  holders: number;
  hits: number;
  parent: number; // -1: none
  key: string; // "": not findable
}

/** A path through the tree that always takes the largest branch; the others are rows below it. */
export interface Run {
  blocks: Block[];
  depth: number; // of its first block: blocks before it in the text
  row: number;
  parentRow: number; // -1: a root
  level: number; // nesting, for the tree's semantics
  ends: { depth: number; request: CacheRequest }[]; // where running requests are
}

/** The blocks of a request in order of position. */
export function blocksHeld(r: CacheRequest): number[] {
  const out: number[] = [];
  for (let i = 0; i + 1 < r.runs.length; i += 2) {
    const first = r.runs[i] ?? 0;
    const n = r.runs[i + 1] ?? 0;
    for (let k = 0; k < n; k++) out.push(first + k);
  }
  return out;
}

export function blocksOf(a: CacheAnswer): Map<number, Block> {
  const out = new Map<number, Block>();
  let k = 0;
  for (let id = 0; id < a.state.length; id++) {
    const c = a.state[id];
    if (c === ".") continue;
    const delta = a.parent[k] ?? 0;
    const key = a.keys.slice(8 * k, 8 * k + 8);
    out.set(id, {
      id,
      state: stateOf(c),
      holders: a.holders[k] ?? 0,
      hits: a.hits[k] ?? 0,
      parent: delta === 0 ? -1 : id + delta,
      key: /^0*$/.test(key) ? "" : key,
    });
    k++;
  }
  return out;
}

/** Parents of all blocks: those that are not findable yet continue what their request holds before. */
function parentsOf(blocks: Map<number, Block>, requests: CacheRequest[]): { parent: Map<number, number>; ends: Map<number, CacheRequest[]> } {
  const parent = new Map<number, number>();
  const ends = new Map<number, CacheRequest[]>();
  for (const b of blocks.values()) parent.set(b.id, blocks.has(b.parent) ? b.parent : -1);
  for (const r of requests) {
    const held = blocksHeld(r);
    held.forEach((id, i) => {
      if (i > 0 && blocks.get(id)?.key === "") parent.set(id, held[i - 1] ?? -1);
    });
    const last = held[held.length - 1];
    if (last !== undefined) ends.set(last, [...(ends.get(last) ?? []), r]);
  }
  return { parent, ends };
}

/** The tree as rows, largest branches first, at most `limit` of them. */
export function runsOf(blocks: Map<number, Block>, requests: CacheRequest[], limit: number): { runs: Run[]; leftOut: number } {
  const { parent, ends } = parentsOf(blocks, requests);
  const children = new Map<number, number[]>();
  for (const [id, p] of parent) {
    const list = children.get(p);
    if (list) list.push(id);
    else children.set(p, [id]);
  }
  // Sizes of subtrees without recursion: chains may be thousands of blocks long.
  const size = new Map<number, number>();
  const order: number[] = [];
  const stack = [...(children.get(-1) ?? [])];
  for (let id = stack.pop(); id !== undefined; id = stack.pop()) {
    order.push(id);
    for (const k of children.get(id) ?? []) stack.push(k);
  }
  for (const id of order.reverse()) size.set(id, 1 + (children.get(id) ?? []).reduce((n, k) => n + (size.get(k) ?? 0), 0));
  const bySize = (ids: number[]): number[] => [...ids].sort((a, b) => (size.get(b) ?? 0) - (size.get(a) ?? 0) || a - b);

  const runs: Run[] = [];
  let leftOut = 0;
  const todo = bySize(children.get(-1) ?? []).map((id) => ({ id, depth: 0, parentRow: -1, level: 1 }));
  for (let t = todo.shift(); t; t = todo.shift()) {
    if (runs.length >= limit) {
      leftOut++;
      continue;
    }
    const run: Run = { blocks: [], depth: t.depth, row: runs.length, parentRow: t.parentRow, level: t.level, ends: [] };
    const branches: typeof todo = [];
    for (let id: number | undefined = t.id; id !== undefined; ) {
      const b = blocks.get(id);
      if (!b) break;
      run.blocks.push(b);
      const depth: number = run.depth + run.blocks.length;
      for (const request of ends.get(id) ?? []) run.ends.push({ depth, request });
      const [next, ...others]: number[] = bySize(children.get(id) ?? []);
      branches.push(...others.map((k) => ({ id: k, depth, parentRow: run.row, level: run.level + 1 })));
      id = next;
    }
    // The deepest branch first: its line then crosses no other.
    todo.unshift(...branches.reverse());
    runs.push(run);
  }
  return { runs, leftOut };
}
