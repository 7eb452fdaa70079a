// Two templates. Both print earlier turns as they were, so that targets can be told from prefixes.
#include "chat/built_in_templates.h"

namespace moraine {
namespace {

// <bos>, then turns between <|im_start|> and <|im_end|>, tools as in Hermes.
constexpr std::string_view kChatMl = R"({{- bos_token -}}
{%- macro text_of(content) %}
  {%- if content is string %}{{ content }}
  {%- elif content is not none and content is iterable %}
    {%- for part in content %}
      {%- if part.type != 'text' %}{{ raise_exception('content of type ' ~ part.type ~ ' is not text') }}{% endif %}
      {{- part.text }}
    {%- endfor %}
  {%- endif %}
{%- endmacro %}
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- if messages and messages[0].role == 'system' %}{{ text_of(messages[0].content) ~ '\n\n' }}{% endif %}
  {{- 'Functions, as JSON:\n<tools>' }}
  {%- for tool in tools %}{{ '\n' ~ tool | tojson }}{% endfor %}
  {{- '\n</tools>\nTo call one, write:\n<tool_call>\n{"name": name, "arguments": object}\n</tool_call>' }}
  {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
    {{- raise_exception('unknown role: ' ~ message.role) }}
  {%- endif %}
  {%- if not (tools and loop.first and message.role == 'system') %}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ text_of(message.content) }}
    {%- for call in message.tool_calls or [] %}
      {%- set f = call.function or call %}
      {{- '\n<tool_call>\n{"name": ' ~ f.name | tojson ~ ', "arguments": ' }}
      {{- (f.arguments if f.arguments is string else f.arguments | tojson) ~ '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// Roles as words, an empty line between turns, <eos> behind an answer.
constexpr std::string_view kPlain = R"({{- bos_token -}}
{%- if tools %}{{ raise_exception("the template 'plain' has no tools; 'chatml' has") }}{% endif %}
{%- set words = {'system': 'System', 'user': 'User', 'assistant': 'Assistant'} %}
{%- for message in messages %}
  {%- if message.role not in words %}{{ raise_exception('unknown role: ' ~ message.role) }}{% endif %}
  {%- if message.content is not string %}{{ raise_exception('content is not text') }}{% endif %}
  {{- words[message.role] ~ ': ' ~ message.content | trim }}
  {{- eos_token if message.role == 'assistant' }}
  {{- '\n\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %})";

}  // namespace

std::string_view built_in_template(std::string_view name) {
  return name == "chatml" ? kChatMl : name == "plain" ? kPlain : std::string_view();
}

}  // namespace moraine
