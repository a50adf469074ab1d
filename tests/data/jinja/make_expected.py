#!/usr/bin/env python3
"""make_expected.py - recomputes the expectations of the *.json files beside it.

Each file is {"now": seconds, "vars": {...}, "cases": [{"template", "vars"?, "text" or "error"}]}
(families.json names its templates and conversations instead of repeating them).  The reference is
Jinja2 set up as transformers does it; needs the Python package jinja2 (written with 3.1.6).  The
tests only read the results.
"""
import datetime
import json
import os

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = os.path.dirname(os.path.abspath(__file__))


class Generation(jinja2.ext.Extension):
    """{% generation %}: the body, unchanged, in a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment(now):
    # The plain sandbox: list.append and its like are allowed, as in nibble.
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                              extensions=[Generation, jinja2.ext.loopcontrols])
    time = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=now)
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = time.strftime
    return env


def render(env, template, variables):
    try:
        return {"text": env.from_string(template).render(**json.loads(json.dumps(variables)))}
    except Exception as e:  # whatever goes wrong in a template is an expectation
        return {"error": f"{type(e).__name__}: {e}"}


def write(name, doc):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=True, indent=1)
        f.write("\n")


def main():
    with open(os.path.join(HERE, "snippets.json"), encoding="utf-8") as f:
        doc = json.load(f)
    env = environment(doc["now"])
    doc["cases"] = [{"template": c["template"], **render(env, c["template"], doc["vars"])}
                    for c in doc["cases"]]
    write("snippets.json", doc)
    with open(os.path.join(HERE, "families.json"), encoding="utf-8") as f:
        doc = json.load(f)
    env = environment(doc["now"])
    for c in doc["cases"]:
        c.pop("text", None)
        c.pop("error", None)
        variables = {**doc["special"], "tools": None, "documents": None,
                     "add_generation_prompt": True, **doc["conversations"][c["conversation"]]}
        c.update(render(env, "\n".join(doc["templates"][c["template"]]), variables))
    write("families.json", doc)


if __name__ == "__main__":
    main()
