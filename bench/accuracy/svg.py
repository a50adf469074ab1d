"""Two kinds of plot as SVG: dots with intervals by name, and lines; logarithmic axes."""
import html
import math

COLOURS = ["#1f6f8b", "#d1495b", "#66a182", "#8d6a9f", "#edae49", "#4a4e69", "#7a7a7a"]
HEAD = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="12">\n'
        '<rect width="{w}" height="{h}" fill="#fff"/>\n<text x="{w2}" y="20" text-anchor="middle" font-size="14">{title}</text>\n')


def decades(lo, hi):
    return [10.0 ** k for k in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)]


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>\n'


def legend(x, y, names):
    return "".join(f'<circle cx="{x}" cy="{y + 16 * i - 4}" r="4" fill="{COLOURS[i % len(COLOURS)]}"/>\n' + text(x + 9, y + 16 * i, n) for i, n in enumerate(names))


def dots(path, title, names, series):
    """series: [(name, [{"value", "lo", "hi"} or None] for each of names)]"""
    left, top, step, width = 290, 40, 14 + 6 * len(series), 900
    height = top + step * len(names) + 40
    seen = [c[k] for _, v in series for c in v if c for k in ("value", "lo", "hi") if c[k] and c[k] > 0]
    if not seen:
        return
    ticks = decades(min(seen), max(seen))
    a, b = math.log10(ticks[0]), math.log10(ticks[-1])
    at = lambda v: left + (width - left - 170) * (math.log10(max(v, ticks[0])) - a) / (b - a or 1)
    out = HEAD.format(w=width, h=height, w2=width // 2, title=html.escape(title))
    for t in ticks:
        out += f'<line x1="{at(t):.1f}" x2="{at(t):.1f}" y1="{top - 8}" y2="{height - 30}" stroke="#ddd"/>\n' + text(at(t), height - 14, f"{t:g}", "middle")
    for i, name in enumerate(names):
        out += text(left - 8, top + step * (i + .5), name, "end", ' font-size="10"')
        for k, (_, values) in enumerate(series):
            c, y, colour = values[i], top + step * i + 6 + 6 * k, COLOURS[k % len(COLOURS)]
            if c and c["value"] and c["value"] > 0:
                out += f'<line x1="{at(c["lo"]):.1f}" x2="{at(c["hi"]):.1f}" y1="{y}" y2="{y}" stroke="{colour}"/>\n<circle cx="{at(c["value"]):.1f}" cy="{y}" r="3" fill="{colour}"/>\n'
    write(path, out + legend(width - 155, top + 6, [n for n, _ in series]))


def lines(path, title, label, series):
    """series: [(name, [(x, y)])]; x logarithmic, y from 0 to 1"""
    left, top, width, height = 60, 40, 760, 420
    xs = [x for _, p in series for x, _ in p]
    if not xs:
        return
    ticks = decades(min(xs), max(xs))
    a, b = math.log10(ticks[0]), math.log10(ticks[-1])
    at = lambda x: left + (width - left - 150) * (math.log10(x) - a) / (b - a or 1)
    up = lambda y: top + (height - top - 50) * (1 - min(max(y, 0), 1))
    out = HEAD.format(w=width, h=height, w2=width // 2, title=html.escape(title))
    for t in ticks:
        out += f'<line x1="{at(t):.1f}" x2="{at(t):.1f}" y1="{up(1)}" y2="{up(0)}" stroke="#ddd"/>\n' + text(at(t), height - 32, f"{100 * t:g} %", "middle")
    for y in (0, .25, .5, .75, 1):
        out += f'<line x1="{at(ticks[0]):.1f}" x2="{at(ticks[-1]):.1f}" y1="{up(y):.1f}" y2="{up(y):.1f}" stroke="#ddd"/>\n' + text(left - 6, up(y) + 4, f"{100 * y:.0f} %", "end")
    for k, (_, points) in enumerate(series):
        colour = COLOURS[k % len(COLOURS)]
        out += f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(f"{at(x):.1f},{up(y):.1f}" for x, y in points)}"/>\n'
        out += "".join(f'<circle cx="{at(x):.1f}" cy="{up(y):.1f}" r="2.5" fill="{colour}"/>\n' for x, y in points)
    out += text((left + width - 150) / 2, height - 10, label, "middle")
    write(path, out + legend(width - 135, top + 10, [n for n, _ in series]))


def write(path, out):
    with open(path, "w", encoding="utf-8") as f:
        f.write(out + "</svg>\n")
