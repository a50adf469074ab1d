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

/** A chain of blocks where each has one child, but for the last. */
export interface Run {
  blocks: Block[];
  depth: number; // of its first block: blocks before it in the text
  row: number;
  parentRow: number; // -1: a root
  level: number; // nesting, for the tree's semantics
  requests: CacheRequest[]; // those whose last findable block this run holds
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

/**
 * The tree as rows, largest chains first, at most `limit` of them. Blocks that a request holds but
 * that are not findable yet continue the block before them in the request's table.
 */
export function runsOf(blocks: Map<number, Block>, requests: CacheRequest[], limit: number): { runs: Run[]; leftOut: number } {
  const parent = new Map<number, number>();
  for (const b of blocks.values()) parent.set(b.id, blocks.has(b.parent) ? b.parent : -1);
  const ends = new Map<number, CacheRequest[]>();
  for (const r of requests) {
    for (let i = 0; i < r.blocks.length; i++) {
      const id = r.blocks[i];
      const b = id === undefined ? undefined : blocks.get(id);
      if (b && !b.key && i > 0) parent.set(b.id, r.blocks[i - 1] ?? -1);
    }
    const last = r.blocks[r.blocks.length - 1];
    if (last !== undefined) ends.set(last, [...(ends.get(last) ?? []), r]);
  }
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
    const run: Run = { blocks: [], depth: t.depth, row: runs.length, parentRow: t.parentRow, level: t.level, requests: [] };
    for (let id = t.id; ; ) {
      const b = blocks.get(id);
      if (!b) break;
      run.blocks.push(b);
      const here = ends.get(id);
      if (here) run.requests.push(...here);
      const next = children.get(id) ?? [];
      const only = next.length === 1 ? next[0] : undefined;
      if (only !== undefined) {
        id = only;
        continue;
      }
      todo.unshift(...bySize(next).map((k) => ({ id: k, depth: run.depth + run.blocks.length, parentRow: run.row, level: run.level + 1 })));
      break;
    }
    runs.push(run);
  }
  return { runs, leftOut };
}
