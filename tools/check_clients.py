"""Real clients against a running `moraine serve`: check_clients.py URL KEY. Started by tools/check_clients.sh."""
import json, sys, urllib.request
import anthropic, openai
from prometheus_client.parser import text_string_to_metric_families

url, key = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
claude = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
model = client.models.list().data[0].id
talk = [{"role": "user", "content": "the cat"}]
schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
          "additionalProperties": False}


def same(a, b):
    assert a == b, (a, b)


# Completions: whole, streamed, several, echoed; the same seed is the same answer.
ask = dict(model=model, prompt="the cat", max_tokens=12, seed=7)
whole = client.completions.create(**ask)
streamed = "".join(c.choices[0].text for c in client.completions.create(stream=True, **ask))
same(whole.choices[0].text, streamed)
same(whole.usage.completion_tokens, 12)
several = client.completions.create(model=model, prompt=["the cat", "the cat"], n=2, seed=7, max_tokens=12)
same([c.index for c in several.choices], [0, 1, 2, 3])
same(several.choices[0].text, several.choices[2].text)
same(several.choices[0].text, whole.choices[0].text)
assert several.choices[0].text != several.choices[1].text
echo = client.completions.create(model=model, prompt="the cat sees", echo=True, logprobs=1, max_tokens=0)
same(echo.choices[0].text, "the cat sees")
same(echo.choices[0].logprobs.token_logprobs[0], None)

# Chat: whole, streamed with usage, as JSON of a schema.
chat = dict(model=model, messages=talk, max_tokens=12, seed=7)
answer = client.chat.completions.create(**chat)
text, usage = "", None
for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **chat):
    text += "".join(c.delta.content or "" for c in chunk.choices)
    usage = chunk.usage or usage
same(answer.choices[0].message.content, text)
same(usage.completion_tokens, 12)
formed = client.chat.completions.create(
    model=model, messages=talk, max_tokens=150, seed=1, temperature=0.5,
    response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": schema}})
if formed.choices[0].finish_reason == "stop":
    assert isinstance(json.loads(formed.choices[0].message.content)["city"], str)

# Tools that must be called, in all three protocols.
tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
called = dict(model=model, messages=talk, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=180, seed=3,
              temperature=0.5)
reply = client.chat.completions.create(**called).choices[0]
if reply.finish_reason == "tool_calls":
    same(reply.message.tool_calls[0].function.name, "weather")
    json.loads(reply.message.tool_calls[0].function.arguments)
arguments = ""
for chunk in client.chat.completions.create(stream=True, **called):
    for call in chunk.choices[0].delta.tool_calls or []:
        arguments += call.function.arguments or ""
same(arguments, reply.message.tool_calls[0].function.arguments)

# Responses and Messages, which know no seed: the likeliest tokens, since a drawn answer may end before its limit. (Anthropic's client
# has no argument for it.)
response = client.responses.create(model=model, input="the cat", max_output_tokens=10, temperature=0)
same(response.status, "incomplete")
assert response.output_text
kinds = [e.type for e in client.responses.create(model=model, input=talk, max_output_tokens=10, temperature=0, stream=True)]
same((kinds[0], kinds[-1]), ("response.created", "response.incomplete"))

message = claude.messages.create(model=model, max_tokens=10, messages=talk, system="sings", extra_body={"temperature": 0})
same(message.stop_reason, "max_tokens")
with claude.messages.stream(model=model, max_tokens=10, messages=talk, extra_body={"temperature": 0}) as stream:
    assert "".join(stream.text_stream)
    same(stream.get_final_message().usage.output_tokens, 10)
assert claude.messages.count_tokens(model=model, messages=talk).input_tokens > 0

# Errors are those that the clients know.
for what, kind in [(lambda: client.completions.create(model=model, prompt="a", temperature=9), openai.BadRequestError),
                   (lambda: client.completions.create(model="other", prompt="a"), openai.NotFoundError),
                   (lambda: openai.OpenAI(base_url=url + "/v1", api_key="wrong").models.list(), openai.AuthenticationError),
                   (lambda: claude.messages.create(model=model, max_tokens=0, messages=talk), anthropic.BadRequestError)]:
    try:
        what()
    except kind as e:
        assert str(e)
    else:
        raise AssertionError(f"wanted {kind.__name__}")

# Metrics, by Prometheus' own parser.
request = urllib.request.Request(url + "/metrics", headers={"authorization": "Bearer " + key})
families = {f.name: f for f in text_string_to_metric_families(urllib.request.urlopen(request).read().decode())}
outcomes = {s.labels["outcome"] for s in families["moraine_requests"].samples}
assert {"ok", "invalid", "unauthorized"} <= outcomes, outcomes
print("check_clients: openai, anthropic and the metrics parser: as they should be")
