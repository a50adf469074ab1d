// format.ts - numbers as people read them.

const whole = new Intl.NumberFormat("en");

export const count = (n: number): string => whole.format(Math.round(n));

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (n >= 1024 && k < units.length - 1) {
    n /= 1024;
    k++;
  }
  return `${k === 0 || n >= 100 ? whole.format(Math.round(n)) : n.toFixed(n >= 10 ? 1 : 2)} ${units[k]}`;
}

export const percent = (part: number, all: number): string => (all > 0 ? `${((100 * part) / all).toFixed(1)} %` : "–");

export function seconds(s: number): string {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const m = Math.floor(s / 60);
  return m < 60 ? `${m} min ${Math.round(s % 60)} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

export const rate = (n: number): string => (n >= 100 ? count(n) : n.toFixed(1));

/** A value with about `digits` significant digits, a true minus, no exponent where it can be avoided. */
export function num(x: number, digits = 5): string {
  if (x === 0) return "0";
  const a = Math.abs(x);
  const s = a >= 1e6 || a < 1e-5 ? x.toExponential(digits - 2) : String(Number(x.toPrecision(digits)));
  return s.replace(/-/g, "−");
}

export const times = (x: number): string => `${x >= 10 ? x.toFixed(1) : x.toFixed(2)}×`;
