"""The cases of make_template_golden.py: expressions, and conversations for every template."""

VARIABLES = {
    "s": "  Hello, World \n", "t": "a-b-c", "u": "héllo ẞ日本 ñ", "empty": "", "n": 7, "f": 2.5, "neg": -3,
    "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "names": ["bob", "Alice", "carol", "alice"],
    "d": {"b": 1, "a": {"x": [1, 2.0, None]}, "C": "q\"uo'te"}, "nested": [[1, 2], [3], []],
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bo", "age": 9, "tags": []},
               {"name": "Cy", "age": 31}],
    "long": "one\ntwo\n\nthree", "html": "<a href='x'>&</a>", "items": [1],
}

EXPRESSIONS = [
    # numbers
    "{{ 1 + 2 * 3 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}", "{{ 7 / 2 }} {{ 6 / 3 }}",
    "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }}",
    "{{ 0.1 + 0.2 }} {{ 1e300 * 1e10 }}", "{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }}", "{{ -n }} {{ +f }} {{ - - n }}",
    "{{ 5.5 // 2 }} {{ 5.5 % 2 }} {{ -5.5 % 2 }}", "{{ true + 1 }} {{ true * 3 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' + 1 }}",
    "{{ 1 + 'a' }}", "{{ none + 1 }}", "{{ 'ab' * 3 }} {{ 2 * [1] }} {{ 'x' * -1 }}", "{{ [1] + [2, 3] }} {{ (1,) + (2,) }}",
    "{{ n|abs }} {{ neg|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 42.55|round(1, 'floor') }} {{ 2.675|round(2) }} {{ 7|round }}",
    "{{ 1234|round(-2) }} {{ 42.1|round(0, 'ceil') }}", "{{ '42'|int }} {{ ' 42.9 '|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 'ff'|int(0, 16) }} {{ 3.9|int }} {{ -3.9|int }}",
    "{{ '2.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ none|int }}", "{{ '%s-%05d-%.2f-%5s|%-5s|%%' % ('a', 42, 3.14159, 'x', 'y') }}",
    "{{ '%d' % 3.7 }} {{ '%x' % 255 }} {{ '%+d' % 5 }}", "{{ '%s %s'|format('a', 1) }}", "{{ '{} {} {0}' }} {{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}{x}'.format(1, 2, x=3) }} {{ '{{}}'.format() }}",
    # texts
    "{{ s|trim }}|{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|", "{{ 'xxaxx'.strip('x') }} {{ 'xyaxy'|trim('xy') }} {{ 'aXb'.lower() }} {{ 'aXb'|upper }}",
    "{{ 'hello world-foo bar'|title }} {{ \"they're x1y\".title() }} {{ 'hELLO wORLD'|capitalize }} {{ u.upper() }} {{ u|title }}",
    "{{ t.split('-') }} {{ t.split('-', 1) }} {{ ' a  b c '.split() }} {{ 'a b c d'.split(none, 2) }} {{ 'a,b,'.split(',') }} {{ ''.split() }} {{ ''.split(',') }}",
    "{{ t.rsplit('-', 1) }} {{ long.splitlines() }} {{ 'a\\r\\nb\\n'.splitlines() }}", "{{ t.startswith('a') }} {{ t.endswith(('c', 'x')) }} {{ t.startswith('') }}",
    "{{ t.replace('-', '+') }} {{ t|replace('-', '', 1) }} {{ 'abc'.replace('', '.') }} {{ 'aaa'.replace('aa', 'b') }}",
    "{{ t.find('b') }} {{ t.find('z') }} {{ u.find('日') }} {{ t.rfind('-') }} {{ t.count('-') }} {{ t.index('c') }}", "{{ 'x'.join(['a', 'b']) }} {{ t.removeprefix('a-') }} {{ t.removesuffix('x') }}",
    "{{ u[1] }} {{ u[-1] }} {{ u[1:4] }} {{ u[::-1] }} {{ u|length }} {{ u[::2] }} {{ u[10:] }}|{{ u[-3:-1] }}", "{{ 'abc'[5] }}|{{ 'abc'['x'] }}",
    "{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1, 'x'] }}", "{{ 'a' 'b' \"c\" }}", "{{ 'it\\'s \\x41\\u00e9\\n\\t\\q \\101' }}", "{{ html }} {{ html|safe }} {{ html|tojson }}",
    "{{ long|indent }}", "{{ long|indent(2, true) }}|{{ long|indent(2, blank=true) }}|{{ long|indent('> ', true, true) }}", "{{ 'abc'|center(10) }}|{{ 'abcd'|center(9) }}|", "{{ 'a b, c'|wordcount }}",
    "{{ 'abc'|list }} {{ 'cab'|sort }} {{ 'abc'|reverse }} {{ 'abc'|first }} {{ 'abc'|last }}", "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'aB'.isupper() }} {{ ''.isdigit() }} {{ 'ab'.islower() }} {{ 'a1'.isalnum() }}",
    "{{ 'Zoë'|lower }} {{ none|upper }} {{ 12|string ~ 'x' }} {{ 5|length }}", "{{ 'a\\\nb' }}", "{{ 'x' if 'ell' in 'hello' else 'y' }} {{ 'x' not in 'abc' }}", "{{ 1 in 'abc' }}",
    # lists and dicts
    "{{ list[0] }} {{ list[-1] }} {{ list[9] }}|{{ list[1:] }} {{ list[::-1] }} {{ list[:-1] }} {{ list[5:1:-2] }} {{ list[2:0:-1] }}", "{{ list[::0] }}", "{{ list.0 }} {{ nested.0.1 }}",
    "{{ list|sort }} {{ list|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ names|unique|list }} {{ names|unique(true)|list }}",
    "{{ people|sort(attribute='age')|map(attribute='name')|join(',') }} {{ people|sort(attribute='name', reverse=true)|map(attribute='name')|list }}",
    "{{ list|join }} {{ list|join('-') }} {{ people|join(', ', attribute='name') }} {{ names|join(d='/') }}", "{{ list|sum }} {{ people|sum(attribute='age') }} {{ list|min }} {{ list|max }} {{ names|max }}",
    "{{ list|first }} {{ list|last }} {{ []|first }}|{{ []|last }}|{{ list|length }} {{ d|length }} {{ list|count }}", "{{ list|reverse|list }} {{ nested|map('length')|list }} {{ names|map('upper')|join(' ') }} {{ names|map('replace', 'a', 'o')|list }}",
    "{{ people|map(attribute='tags.0', default='none')|list }} {{ people|map(attribute='tags')|select('defined')|list }}", "{{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ list|select('gt', 1)|list }} {{ [0, 1, '', 'a']|select|list }} {{ [0, 1]|reject|list }}",
    "{{ people|selectattr('age', 'equalto', 31)|map(attribute='name')|list }} {{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|rejectattr('age', 'gt', 10)|map(attribute='name')|list }} {{ people|selectattr('tags', 'defined')|list|length }}",
    "{{ none|select('odd')|list }} {{ 0|selectattr('x', 'nonsense')|list }} {{ none|map('nonsense')|list }} {{ ''|rejectattr('x')|list }}", "{{ none|sort }}", "{{ none|unique|list }}", "{{ none|sum }}",
    "{{ list|batch(2)|list }} {{ list|batch(2, 0)|list }}", "{% for g, l in people|groupby('age') %}{{ g }}:{{ l|map(attribute='name')|join('+') }};{% endfor %}", "{{ d }} {{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d.zzz }}|{{ d['zzz'] }}|{{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 5) }}",
    "{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d|items|list }} {{ d|list }} {{ d|dictsort }} {{ d|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(false, 'value') }} {{ {'x': 2, 'y': 1}|dictsort(reverse=true) }}",
    "{{ 'b' in d }} {{ 1 in list }} {{ 9 not in list }} {{ 'x' in undefined_thing }}", "{{ {'a': 1, 'a': 2, 1: 'x', none: 3} }} {{ {} }} {{ [] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ [1, [2, 'x']] }}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }}",
    "{{ d.items }}{{ 1/0 }}", "{{ d.update({'x': 1}) }}", "{{ list.append(4) }}", "{{ list.index(2) }} {{ list.count(1) }}", "{{ [1, 2] == [1, 2] }} {{ (1, 2) == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }} {{ 1 == true }} {{ 1 == '1' }} {{ none == false }}",
    "{{ [1, 2] < [1, 3] }} {{ 'a' < 'b' }} {{ 1 < 'a' }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 < 2 == 2 }} {{ 3 > 2 > 1 != 0 }}", "{{ ['a\\'b', \"a\\\"b'\", 'é', '\\n\\t\\x07', none, true, 1.0] }}",
    # json
    "{{ d|tojson }}", "{{ d|tojson(indent=2) }}", "{{ d|tojson(indent=4) }}|{{ []|tojson(indent=2) }}{{ {}|tojson(indent=2) }}", "{{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ '😀\\x01\\x7f\\b/'|tojson(true) }}", "{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(indent='--') }} {{ [1,2]|tojson(indent=0) }}",
    "{{ [1.0, 1e22, none, true, (1, 2), {1: 2, none: 3, true: 4, 1.5: 5}]|tojson }}", "{{ undefined_thing|tojson }}", "{{ range(3)|list|tojson }}", "{{ people|tojson(indent=1) }}",
    # undefined and default
    "[{{ x }}] {{ x is defined }} {{ x|default('d') }} {{ x|default }} {{ none|default('d') }} {{ ''|default('d', true) }} {{ none|d('e', boolean=true) }}", "{{ x.y }}", "{{ x['y'] }}", "{{ x + 1 }}", "{{ x() }}", "{{ d.a.q }}|{{ d.q.r }}", "{{ nothing.foo }}|{{ nothing['foo'] }}", "{% for i in x %}a{% else %}none{% endfor %}",
    "{{ x == y }} {{ x|length }} {{ not x }} {{ x ~ 'a' }} {{ x|list }} {{ x or 5 }}", "{{ x < 1 }}", "{{ 'a' if false }}|", "{% for i in nothing %}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{{ loop }}", "{{ x|upper }}|{{ x|trim }}|{{ x|int }}",
    # tests
    "{{ n is number }} {{ f is float }} {{ n is integer }} {{ yes is integer }} {{ yes is number }} {{ yes is boolean }} {{ s is string }} {{ d is mapping }} {{ list is sequence }} {{ s is sequence }} {{ d is iterable }} {{ n is iterable }} {{ nothing is none }}",
    "{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 'a' is in 'abc' }} {{ 2 is in [1, 2] }} {{ 3 is not in [1] }} {{ 2 is gt 1 }} {{ 2 is le 1 }} {{ 2 is ne 2 }}",
    "{{ x is not defined and yes }} {{ not x is defined }} {{ 'a' is lower }} {{ 'A' is upper }} {{ d is sameas d }} {{ none is sameas none }} {{ 'x' is callable }} {{ range is callable }}", "{{ n is nonsense }}", "{{ n|nonsense }}", "{{ s.nonsense() }}", "{{ nonsense() }}", "{% if false %}{{ n|nonsense }}{% endif %}ok",
    # logic
    "{{ 0 or 'a' }} {{ 'a' and 'b' }} {{ '' and 1 }}| {{ not 0 }} {{ not not 'a' }} {{ 1 and 0 or 2 }} {{ not 1 == 2 }}", "{{ 'a' if no else 'b' if no else 'c' }} {{ ('a' if yes) ~ 'z' }}", "{{ n > 5 and n < 10 }} {{ (1, 2)[0] }} {{ [1, 2, 3][1:][0] }} {{ (n - 1)|string ~ 'q' }} {{ -1|abs }} {{ 'a'|upper ~ 'b'|upper }}", "{{ list is defined and list|length > 2 }}", "{{ 1 if 2 is even else 3 }}",
    # statements
    "{% set a = 1 %}{% set b, c = 2, 3 %}{{ a }}{{ b }}{{ c }}", "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}", "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}", "{% set ns = namespace(a=1) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% set ns.z = i %}{% endfor %}{{ ns.a }} {{ ns.z }} {{ ns.q }}|{{ ns.q is defined }}",
    "{% set q.a = 1 %}", "{% set n.a = 1 %}", "{% set x %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {{ n }} {% endset %}[{{ x }}]", "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for i in list if i > 1 %}{{ i }}{{ loop.index }}/{{ loop.length }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}", "{% for i in list if i > 9 %}{{ i }}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1, 2] %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for n in nested recursive %}[{{ loop(n) if n is iterable else n }}{{ loop.depth }}]{% endfor %}", "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}",
    "{{ range(5)|list }} {{ range(2, 5)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }}", "{{ range(1, 2, 0) }}", "{{ range(1000000) }}", "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ m(1, 2, 3) }} {{ m() }}|", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(5) %}in {{ y }} {{ n }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% set q = 1 %}x{% endcall %}", "{% macro m() %}a{% endmacro %}{% call m() %}b{% endcall %}", "{% macro f(i) %}{{ i }}{% if i > 0 %}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro m() %}{{ later }}{% endmacro %}{% set later = 1 %}{{ m() }}",
    "{% macro m() %}{% set a = 2 %}{% endmacro %}{% set a = 1 %}{{ m() }}{{ a }}", "{% macro m(list) %}{{ list }}{% endmacro %}{{ m(4) }}{{ list }} {{ m(list=list) }} {{ m(*[7]) }} {{ m(**{'list': 8}) }}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}|", "{% for i in [1,2,3] %}{% with x = i %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endwith %}{% endfor %}", "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if x %}a{% elif y %}b{% endif %}|",
    "{% raw %}{{ x }} {% if %}{% endraw %}!", "  {%- raw %} a {{ {% endraw -%}   !", "{# c #}a{# {{ x }} #}\nb", "{% set j = joiner('; ') %}{% for i in list %}{{ j() }}{{ i }}{% endfor %}", "{{ raise_exception('no ' ~ n) }}", "{% generation %}abc{% endgeneration %}d{% for i in [1,2] %}{% generation %}é{{ i }}{% endgeneration %}-{% endfor %}",
    "{% set items = [1] %}{{ items }} {{ d.items()|length }}", "{{ {'items': 5}['items'] }} {{ {'get': 5}.get('get') }}", "{{ {'content': 'x'}.content }} {{ {'a': {'b': {'c': 1}}}.a.b.c }}", "{% set a = namespace() %}{% set a.list = [] %}{% for i in [1, 2] %}{% set a.list = a.list + [i * 2] %}{% endfor %}{{ a.list }}", "{% set a = 1, %}{{ a }}", "{% print n %}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc\n\n", "a {% if yes %} b {% endif %} c", "a\n  {%+ if yes %}\nb{% endif +%}\nc", "a  {{- n -}}  b\n {{ n }} \n{{- n }}\n", "  {# x #}\n  {#- y -#}  \n z {# w #} \nq", "{% if yes %}\n\n\na{% endif %}\n\n\nb", "a\r\nb\rc\n\n", "{{ n }}\n", "\n{% set a = 1 %}\n\n{{ a }}\n", "{% for i in list %}\n    {{ i }}\n{% endfor %}\nx",
    "{%- for i in list -%}\n    {{ i }} \n{%- endfor -%}\n x", "\t{% if yes %}\tb{% endif %}\t{% if yes %}\n\t{% endif %}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {}}}}", "{{ '}}' }}{{ '%}' }}", "{{ \"{{ x }}\" }} { { } } {%if yes%}x{%endif%}", "{{-\n n\n+ 1 -}}\n", "{#-#}a{#--#} b", "x {#- a -#}{{ n }}", "a{% raw -%}  b  {%- endraw %}  \nc",
    # errors of the text
    "{{ ", "{% if %}", "{% if x %}", "{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, }}", "{% nonsense %}", "{{ 'abc }}", "{# abc", "{% raw %}", "{{ a b }}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% set %}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% break %}", "{{ 1 is odd is even }}", "{{ x | }}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% else %}", "{{ $ }}", "{{ a.'b' }}", "{{ f(a=1, 2) }}", "{{ {1} }}", "{{ }}", "{% call 1 %}{% endcall %}", "{% if yes %}{% endfor %}", "{{ x if }}", "{{ 1..2 }}", "{{ a ! b }}",
]

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\" <now>", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Its name, e.g. Łódź"},
                                         "unit": {"type": "string", "enum": ["C", "F"]},
                                         "days": {"type": "array", "items": {"type": "integer"}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, identity="abcdef123"):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def case(messages, tools=None, prompt=True, **more):
    return {"messages": messages, "tools": tools, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>", **more}


USER = {"role": "user", "content": "Hi  there\n"}
ANSWER = {"role": "assistant", "content": "Hello! \n"}
SYSTEM = {"role": "system", "content": " Be brief. "}
THOUGHT = {"role": "assistant", "content": "<think>\nHm, é.\n</think>\n\nParis."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what? "}]}
RESULT = {"role": "tool", "content": "{\"temp\": 3}", "tool_call_id": "abcdef123", "name": "get_weather"}

CONVERSATIONS = [
    case([USER]), case([USER], prompt=False), case([SYSTEM, USER]), case([SYSTEM, USER, ANSWER], prompt=False),
    case([USER, ANSWER, {"role": "user", "content": "Again?"}]), case([SYSTEM, USER, ANSWER, USER, THOUGHT], prompt=False),
    case([USER, THOUGHT, USER]), case([USER], enable_thinking=False), case([USER], enable_thinking=True), case([PARTS]),
    case([{"role": "user", "content": "日本 <&> \"q\" 'a'"}]), case([USER], TOOLS), case([SYSTEM, USER], TOOLS, date_string="1 Jan 2026"),
    case([USER, call("get_weather", {"city": "Łódź", "days": [1, 2], "metric": True})], TOOLS, False),
    case([SYSTEM, USER, call("get_weather", {"city": "X \"y\""}), RESULT], TOOLS),
    case([USER, call("get_weather", {"city": "X"}), RESULT, {"role": "assistant", "content": "3 degrees."}, USER], TOOLS),
    case([USER, {**call("now", {}), "reasoning_content": "I need it."}, RESULT, RESULT], TOOLS, enable_thinking=True),
    case([USER, {"role": "assistant", "content": None, "tool_calls": call("now", {})["tool_calls"] + call("get_weather", {"city": "a\nb", "n": 1.5, "o": {"p": None}}, "xyz456789")["tool_calls"]}], TOOLS, False),
    case([ANSWER, USER]), case([USER, USER]), case([]), case([{"role": "wizard", "content": "x"}]),
]
