#!/usr/bin/env python3
"""Makes tests/golden/chat_templates.json: what Jinja2, set up as Hugging Face's apply_chat_template does it,
makes of expressions and of chat templates.

    python3 -m venv VENV && VENV/bin/pip install jinja2==3.1.6
    VENV/bin/python tools/make_template_golden.py tests/golden/chat_templates.json

The templates in tests/golden/chat_templates/ are written for this test in the manner of published ones: the same
features, layout of tools and white space control, words of our own. None is a copy. A second argument is a folder of
other templates, for a comparison by hand (docs/chat_templates.md).
"""
import datetime
import json
import pathlib
import sys

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_golden_cases import CONVERSATIONS, EXPRESSIONS, VARIABLES


class Generation(Extension):
    """{% generation %}, and where its text went."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_mark")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _mark(self, caller):
        return "\x01" + caller() + "\x02"


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return env


def render(env, source, variables):
    try:
        marked = env.from_string(source).render(**variables)
    except Exception as error:  # what Jinja calls it is not compared, that it is an error is
        return {"error": f"{type(error).__name__}: {error}"}
    text, targets, begin = "", [], 0
    for c in marked:
        if c == "\x01":
            begin = len(text.encode())
        elif c == "\x02":
            if len(text.encode()) > begin:
                targets.append([begin, len(text.encode())])
        else:
            text += c
    return {"text": text, "targets": targets} if targets else {"text": text}


def main():
    env = environment()
    ours = pathlib.Path(__file__).parent.parent / "tests/golden/chat_templates"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ours
    result = {"variables": VARIABLES, "expressions": [], "templates": []}
    for source in EXPRESSIONS:
        result["expressions"].append({"source": source, **render(env, source, VARIABLES)})
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        for variables in CONVERSATIONS:
            given = {"tools": None, "documents": None, **variables}
            result["templates"].append({"template": path.name, "variables": given, **render(env, source, given)})
    text = json.dumps(result, ensure_ascii=False, indent=1)
    pathlib.Path(sys.argv[1]).write_text(text + "\n")
    errors = [r for r in result["templates"] if "error" in r]
    print(len(result["expressions"]), "expressions,", len(result["templates"]), "renders,", len(errors), "of them errors")


main()
