#!/usr/bin/env bash
# Runs real clients against the built program: the OpenAI and Anthropic packages, Prometheus' parser, lm-evaluation-harness.
#   tools/check_clients.sh [MORAINE]     MORAINE: the program; default: build/release/moraine
# Makes a virtual environment in $MORAINE_CLIENTS (default: build/clients) the first time. Exit 77, and a line that says so, where
# Python or the packages cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
moraine=$(realpath "${1:-$here/build/release/moraine}")
venv=${MORAINE_CLIENTS:-$here/build/clients}
skip() { echo "check_clients: SKIPPED: $1" >&2; exit 77; }

command -v python3 >/dev/null || skip "no python3"
if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3 makes no virtual environment (Debian: python3-venv)"
  timeout 600 "$venv/bin/pip" install -q --disable-pip-version-check openai==3.54.0 anthropic==2.12.0 prometheus-client==0.26.0 'lm-eval[api]==0.4.13' >/dev/null 2>&1 ||
    skip "pip reaches no packages"
  touch "$venv/ready"
fi

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
key=a-key-for-the-test-only
echo "$key" > keys

# A model of seconds: words in no order.
awk 'BEGIN { srand(1); n = split("the cat dog sees runs house red blue quick and or in on of tree bird sings night day walks small large", w, " ");
  for (i = 0; i < 2000; i++) { s = ""; k = 5 + int(rand() * 25); for (j = 0; j < k; j++) s = s w[1 + int(rand() * n)] " "; print s "." } }' > text.txt
"$moraine" tokenizer train --input text.txt --vocab-size 400 --out tok >/dev/null 2>&1
"$moraine" data build --tokenizer tok --input text.txt --out data >/dev/null 2>&1
printf '%s\n' '[model]' 'hidden = 64' 'layers = 2' 'heads = 4' 'kv_heads = 2' 'head_dim = 16' 'experts = 4' 'expert_hidden = 64' 'router_hidden = 16' \
  '[data]' 'train = "data"' 'tokenizer = "tok"' '[train]' 'seed = 1' 'slots = 2' 'sequence = 256' 'batch_tokens = 1024' 'steps = 20' 'dtype = "f32"' > run.toml
"$moraine" train --config run.toml --out run >/dev/null 2>&1
cat > template.jinja <<'TEMPLATE'
{%- for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if tools %}Calls are written <tool_call>{"name": ..., "arguments": ...}</tool_call>: {{ tools | tojson }}
{% endif %}{% if add_generation_prompt %}assistant:{% endif %}
TEMPLATE
"$moraine" serve --model run --name tiny --port 0 --context 1024 --chat-template template.jinja --api-key-file keys > out.txt 2> err.txt &
server=$!
for _ in $(seq 200); do grep -qs listening out.txt && break; kill -0 "$server" 2>/dev/null || { cat err.txt >&2; exit 1; }; sleep 0.1; done
url=$(sed -n 's/^listening on //p' out.txt)

"$venv/bin/python" "$here/tools/check_clients.py" "$url" "$key"

# lm-evaluation-harness, unchanged, on tasks of files: its numbers are those of the native commands, to the last digit that is printed.
awk 'BEGIN { srand(2); n = split("the cat dog sees runs house red blue quick and or in on of tree bird sings night day walks small large", w, " ");
  for (i = 0; i < 60; i++) { c = ""; for (j = 0; j < 3 + i % 5; j++) c = c (j ? " " : "") w[1 + int(rand() * n)];
    s = ""; for (k = 0; k < 4; k++) { a = ""; for (j = 0; j < 1 + int(rand() * 4); j++) a = a (j ? " " : "") w[1 + int(rand() * n)]; s = s (k ? ", " : "") "\"" a "\"" }
    printf "{\"context\": \"%s\", \"choices\": [%s], \"answer\": %d}\n", c, s, int(rand() * 4) } }' > task.jsonl
head -n 20 text.txt | sed 's/.*/{"text": "&"}/' > texts.jsonl
mkdir tasks
cat > tasks/local.yaml <<TASK
task: moraine_local
dataset_path: json
dataset_kwargs: {data_files: {test: $work/task.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
TASK
cat > tasks/text.yaml <<TASK
task: moraine_text
dataset_path: json
dataset_kwargs: {data_files: {test: $work/texts.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
TASK
HF_HUB_OFFLINE=1 HF_HOME=$work/hf OPENAI_API_KEY=$key "$venv/bin/lm_eval" --model local-completions \
  --model_args "model=tiny,base_url=$url/v1/completions,tokenizer_backend=remote,auth_token=$key,num_concurrent=4,max_retries=1" \
  --tasks moraine_local,moraine_text --include_path tasks --output_path results > lm_eval.log 2>&1 || { tail -n 20 lm_eval.log >&2; exit 1; }
"$moraine" eval choice --model run --input task.jsonl --delimiter " " --json > choice.json 2>/dev/null
# There the token that ends a text stands in front of each; `eval score` takes it as any other.
end=$("$moraine" tokenizer encode --tokenizer tok --text "<|endoftext|>" --json | sed 's/.*"tokens":\[\([0-9 ,]*\)\].*/\1/')
while read -r line; do
  ids=$("$moraine" tokenizer encode --tokenizer tok --text "$(sed 's/^{"text": "//; s/"}$//' <<< "$line")" --json | sed 's/.*"tokens":\[\([0-9 ,]*\)\].*/\1/')
  "$moraine" eval score --model run --tokens "$end ${ids//,/ }" --json
done < texts.jsonl > scores.jsonl
"$venv/bin/python" "$here/tools/compare_lm_eval.py" results choice.json scores.jsonl texts.jsonl || exit 1
kill -TERM "$server"
wait "$server" || { echo "check_clients: the server ended with $?" >&2; exit 1; }
server=
echo "check_clients: ready"
