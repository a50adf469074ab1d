// page.ts - one page of the cache as the server tells it, ready to be drawn: numbers of a value at
// each precision, planes of the whole page.
import type { PageAnswer, PageRecord, PageSegment } from "./api";
import { num } from "./format";

export interface Cell {
  dtype: string;
  code: string;
  codeName: string;
  blockScale: string;
  outerScale: string;
  reads: number;
  error: number;
}

export const RECORD_NAMES: Record<string, string> = { bf16: "BF16", fp8: "FP8", nvfp4: "NVFP4", if4: "IF4", f32: "F32" };
export const recordName = (dtype: string): string => RECORD_NAMES[dtype] ?? dtype;

/** Which segment, vector and index a value of a token is. */
export function place(a: PageAnswer, value: number): { seg: number; vec: number; i: number; name: string } {
  let at = value;
  for (let s = 0; s < a.segments.length; s++) {
    const g = a.segments[s];
    if (!g) break;
    const n = g.n_vec * g.dim;
    if (at < n || s === a.segments.length - 1) {
      const vec = Math.floor(at / g.dim);
      return { seg: s, vec, i: at % g.dim, name: g.n_vec > 1 ? `${g.name} ${vec}, ${at % g.dim}` : `${g.name} ${at}` };
    }
    at -= n;
  }
  return { seg: 0, vec: 0, i: 0, name: "" };
}

function codeText(g: PageSegment, code: number): [string, string] {
  const bits = (n: number): string => code.toString(2).padStart(n, "0");
  if (g.code_bits === 4) {
    const b = bits(4);
    return [`${b[0]} ${b.slice(1, 3)} ${b[3]}`, "sign, exponent, fraction"];
  }
  if (g.fmt === "int8") return [bits(8), `whole number ${code > 127 ? code - 256 : code}`];
  if (g.code_bits === 8) {
    const b = bits(8);
    return [`${b[0]} ${b.slice(1, 5)} ${b.slice(5)}`, "sign, exponent, fraction"];
  }
  return [`0x${code.toString(16).padStart(g.code_bits / 4, "0")}`, "16 bits, stored as they are"];
}

/** 2^k as such, other numbers as numbers. */
function power(x: number): string {
  const k = Math.log2(x);
  return x > 0 && Number.isInteger(k) ? `2^${k}`.replace("-", "−") : num(x);
}

export function cellOf(a: PageAnswer, r: PageRecord, value: number): Cell {
  const p = place(a, value);
  const shape = a.segments[p.seg];
  const g = r.segments[p.seg];
  const reads = r.decoded[value] ?? 0;
  const cell: Cell = { dtype: r.dtype, code: "–", codeName: "", blockScale: "–", outerScale: "–", reads, error: reads - (a.values[value] ?? 0) };
  if (!g || !shape) return cell;
  const code = g.codes[p.vec * shape.dim + p.i];
  if (code !== undefined) [cell.code, cell.codeName] = codeText(g, code);
  if (g.group) {
    const k = p.vec * Math.ceil(shape.dim / g.group) + Math.floor(p.i / g.group);
    const raw = g.scale_bytes[k] ?? 0;
    const uniform = g.fmt === "if4" && (raw & 0x80) !== 0;
    cell.blockScale = num(g.scales[k] ?? 0);
    if (uniform) {
      cell.blockScale += ", even steps";
      const b = (code ?? 0).toString(2).padStart(4, "0");
      [cell.code, cell.codeName] = [`${b[0]} ${b.slice(1)}`, "sign, steps"];
    }
  }
  const outer = g.outer[p.vec];
  if (outer !== undefined) cell.outerScale = power(outer);
  return cell;
}

/** A plane of the page: companded int8, so that sqrt(|v| / amax) = |b| / 127. */
export function planeOf(r: PageRecord): Int8Array {
  const raw = atob(r.plane);
  const out = new Int8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export const bitsPerValue = (a: PageAnswer, r: PageRecord): number => (8 * r.bytes_per_token) / a.n_values;

export function shownText(t: { id: number; text: string | null } | undefined): string {
  if (!t) return "";
  if (t.text === null) return `#${t.id}`;
  return t.text.replace(/\n/g, "↵").replace(/ /g, "␣") || `#${t.id}`;
}
