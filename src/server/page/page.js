// Page: a conversation with the model that this server serves. Talks to no other machine.
//
// The turns are the state; the document is drawn from them. A turn is {role, text, tokens, thought, facts,
// error}; tokens are {text, p, top} as the stream brings them.
'use strict';

const $ = (id) => document.getElementById(id);
const kKept = ['mode', 'temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'stop', 'system', 'shades'];
const kTopTokens = 5;

let turns = [];
let model = null;    // of /v1/models
let running = null;  // AbortController of the answer that is being written

// --- settings -----------------------------------------------------------------------------------------------

function load_settings() {
  try {
    const kept = JSON.parse(localStorage.getItem('moraine') || '{}');
    for (const id of kKept) {
      if (!(id in kept)) continue;
      if ($(id).type === 'checkbox') $(id).checked = kept[id]; else $(id).value = kept[id];
    }
  } catch { /* a damaged or forbidden store is an empty one */ }
}

function save_settings() {
  const kept = {};
  for (const id of kKept) kept[id] = $(id).type === 'checkbox' ? $(id).checked : $(id).value;
  try { localStorage.setItem('moraine', JSON.stringify(kept)); } catch { /* nothing is kept then */ }
  document.body.classList.toggle('shaded', $('shades').checked);
}

function number_of(id) { return $(id).value === '' ? undefined : Number($(id).value); }

function headers() {
  const fields = {'content-type': 'application/json'};
  if ($('key').value) fields.authorization = 'Bearer ' + $('key').value;
  return fields;
}

// --- drawing ------------------------------------------------------------------------------------------------

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function token_node(token) {
  const node = element('span', {className: 'token', textContent: token.text, tabIndex: -1});
  node.style.setProperty('--p', token.p);
  node.token = token;
  return node;
}

function draw_turn(turn) {
  const body = element('div', {className: 'body'});
  if (turn.tokens && turn.tokens.length) {
    if (turn.prefix) body.append(turn.prefix);
    body.append(...turn.tokens.map(token_node));
  } else {
    body.textContent = turn.text;
  }
  const node = element('section', {className: 'turn ' + turn.role});
  node.append(element('div', {className: 'who', textContent: turn.role}));
  if (turn.thought) node.append(element('div', {className: 'thought', textContent: turn.thought}));
  node.append(body);
  const facts = element('div', {className: 'facts'});
  if (turn.error) facts.append(element('span', {className: 'error', textContent: turn.error}));
  if (turn.facts) facts.append(element('span', {textContent: turn.facts}));
  if (turn !== running?.turn) {
    const act = (label, f) => facts.append(element('button', {type: 'button', textContent: label, onclick: f}));
    if (turn.role === 'user') act('edit', () => edit(turn));
    if (turn.role === 'assistant') act('retry', () => retry(turn));
    if (turn.text) act('copy', () => navigator.clipboard?.writeText(turn.text));
  }
  node.append(facts);
  turn.node = node;
  return node;
}

function draw() {
  $('log').replaceChildren(...turns.map(draw_turn));
  $('log').scrollTop = $('log').scrollHeight;
  $('send').hidden = running !== null;
  $('stop-button').hidden = running === null;
}

function redraw(turn) {
  const log = $('log'), low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const before = turn.node;
  before.replaceWith(draw_turn(turn));
  if (low) log.scrollTop = log.scrollHeight;
}

// Only what is new: an answer of thousands of tokens is not drawn again with each.
function append_token(turn, token) {
  const log = $('log'), low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const body = turn.node.querySelector('.body');
  if (turn.tokens.length === 1 && !turn.prefix) body.textContent = '';
  body.append(token_node(token));
  if (low) log.scrollTop = log.scrollHeight;
}

// --- probabilities on hover ---------------------------------------------------------------------------------

function show_tip(node) {
  const token = node.token, rows = [];
  const percent = (p) => (100 * p).toFixed(p < 0.001 ? 4 : 1) + ' %';
  const row = (text, p, chosen) => rows.push(element('tr', {className: chosen ? 'chosen' : ''},
      element('td', {textContent: JSON.stringify(text)}), element('td', {textContent: percent(p)})));
  row(token.text, token.p, true);
  for (const other of token.top) if (other.text !== token.text) row(other.text, other.p, false);
  $('tip').replaceChildren(element('table', {}, element('tbody', {}, ...rows)));
  $('tip').hidden = false;
  const at = node.getBoundingClientRect(), size = $('tip').getBoundingClientRect();
  $('tip').style.left = Math.max(4, Math.min(at.left, innerWidth - size.width - 4)) + 'px';
  $('tip').style.top = (at.bottom + size.height + 8 > innerHeight ? at.top - size.height - 4 : at.bottom + 4) + 'px';
}

document.addEventListener('mouseover', (e) => { if (e.target.token) show_tip(e.target); else $('tip').hidden = true; });
document.addEventListener('focusin', (e) => { if (e.target.token) show_tip(e.target); else $('tip').hidden = true; });

// --- the stream ---------------------------------------------------------------------------------------------

// Calls each(object) for every event of a stream; throws an Error with the server's message.
async function stream(url, body, signal, each) {
  const response = await fetch(url, {method: 'POST', headers: headers(), body: JSON.stringify(body), signal});
  if (!response.ok) {
    const text = await response.text();
    let message = text;
    try { message = JSON.parse(text).error.message; } catch { /* not JSON: as it is */ }
    throw new Error(response.status + ': ' + message);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    rest += value;
    const events = rest.split('\n\n');
    rest = events.pop();
    for (const event of events) {
      for (const line of event.split('\n')) {
        if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
        const object = JSON.parse(line.slice(6));
        if (object.error) throw new Error(object.error.message);
        each(object);
      }
    }
  }
}

function options() {
  const o = {
    model: model?.id, stream: true, stream_options: {include_usage: true}, temperature: number_of('temperature'),
    top_p: number_of('top_p'), top_k: number_of('top_k'), min_p: number_of('min_p'), max_tokens: number_of('max_tokens'),
    seed: number_of('seed'),
  };
  if ($('stop').value) o.stop = $('stop').value;
  return o;
}

function chat_body(until) {
  const messages = $('system').value ? [{role: 'system', content: $('system').value}] : [];
  for (const turn of turns.slice(0, until)) messages.push({role: turn.role, content: turn.text});
  return {...options(), messages, logprobs: true, top_logprobs: kTopTokens};
}

// Tokens of one event, whichever protocol it is of.
function tokens_of_chat(choice) {
  return (choice.logprobs?.content || []).map((t) => ({
    text: t.token, p: Math.exp(t.logprob), top: t.top_logprobs.map((o) => ({text: o.token, p: Math.exp(o.logprob)}))}));
}
function tokens_of_text(choice) {
  const l = choice.logprobs;
  return (l?.tokens || []).map((text, i) => ({
    text, p: Math.exp(l.token_logprobs[i]),
    top: Object.entries(l.top_logprobs?.[i] || {}).map(([other, lp]) => ({text: other, p: Math.exp(lp)}))}));
}

function facts_of(state) {
  const parts = [];
  if (state.first) parts.push('first token ' + Math.round(state.first - state.begun) + ' ms');
  if (state.count > 1) {
    parts.push(((state.count - 1) * 1000 / (state.last - state.first)).toFixed(1) + ' tokens/s');
  }
  if (state.usage) {
    const cached = state.usage.prompt_tokens_details?.cached_tokens || 0;
    parts.push(state.usage.prompt_tokens + ' prompt tokens' + (cached ? ' (' + cached + ' cached)' : ''));
    parts.push(state.usage.completion_tokens + ' new');
  }
  if (state.finish) parts.push(state.finish);
  if (state.version) parts.push(state.version);
  return parts.join(' · ');
}

async function answer(turn, url, body, chat) {
  const state = {begun: performance.now(), count: 0};
  running = new AbortController();
  running.turn = turn;
  draw();
  try {
    await stream(url, body, running.signal, (object) => {
      state.version = object.system_fingerprint || state.version;
      state.usage = object.usage || state.usage;
      const choice = object.choices?.[0];
      if (!choice) return;
      state.finish = choice.finish_reason || state.finish;
      const text = chat ? choice.delta?.content || '' : choice.text || '';
      const thought = chat ? choice.delta?.reasoning_content || '' : '';
      turn.text += text;
      if (thought) { turn.thought = (turn.thought || '') + thought; redraw(turn); }
      for (const token of chat ? tokens_of_chat(choice) : tokens_of_text(choice)) {
        if (!state.first) state.first = performance.now();
        state.last = performance.now();
        ++state.count;
        if (thought) continue;
        turn.tokens.push(token);
        append_token(turn, token);
      }
      turn.facts = facts_of(state);
      turn.node.querySelector('.facts').textContent = turn.facts;
    });
  } catch (error) {
    if (error.name === 'AbortError') state.finish = 'stopped'; else turn.error = error.message;
  }
  // What was shown token by token may differ from the text: characters of several tokens, cut stop strings.
  const shown = turn.tokens.map((t) => t.text).join('');
  if ((turn.prefix || '') + shown !== turn.text) turn.tokens = [];
  turn.facts = facts_of(state);
  running = null;
  draw();
  $('input').focus();
}

// --- what a person does -------------------------------------------------------------------------------------

function send(text) {
  if (running || !text) return;
  if ($('mode').value === 'text') {
    const turn = {role: 'assistant', text, prefix: text, tokens: []};
    turns = [turn];
    answer(turn, 'v1/completions', {...options(), prompt: text, logprobs: kTopTokens}, false);
    return;
  }
  turns.push({role: 'user', text});
  const turn = {role: 'assistant', text: '', tokens: []};
  turns.push(turn);
  answer(turn, 'v1/chat/completions', chat_body(turns.length - 1), true);
}

function retry(turn) {
  if (running) return;
  if (turn.prefix !== undefined) { send(turn.prefix); return; }
  const at = turns.indexOf(turn);
  turns = turns.slice(0, at);
  const next = {role: 'assistant', text: '', tokens: []};
  turns.push(next);
  answer(next, 'v1/chat/completions', chat_body(at), true);
}

function edit(turn) {
  if (running) return;
  $('input').value = turn.text;
  turns = turns.slice(0, turns.indexOf(turn));
  draw();
  $('input').focus();
}

function stop() { running?.abort(); }
function fresh() { stop(); turns = []; draw(); $('input').focus(); }
function toggle_settings() {
  const shown = $('settings').hidden;
  $('settings').hidden = !shown;
  $('settings-button').setAttribute('aria-expanded', String(shown));
  if (shown) $('mode').focus();
}
function submit() {
  const text = $('input').value;
  if (!running) $('input').value = '';
  send(text);
}

async function ask_model() {
  try {
    const response = await fetch('v1/models', {headers: headers()});
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error.message);
    model = answer.data[0];
    $('model').textContent = model.id;
    document.title = model.id + ' · Moraine';
    const chat = model.chat !== false;
    $('mode').options[0].disabled = !chat;
    if (!chat) $('mode').value = 'text';
  } catch (error) {
    $('model').textContent = error.message;
  }
}

$('composer').addEventListener('submit', (e) => { e.preventDefault(); submit(); });
$('input').addEventListener('keydown', (e) => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
});
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape') stop();
  if (e.altKey && e.code === 'KeyN') { e.preventDefault(); fresh(); }
  if (e.altKey && e.code === 'KeyS') { e.preventDefault(); toggle_settings(); }
});
$('stop-button').addEventListener('click', stop);
$('fresh').addEventListener('click', fresh);
$('settings-button').addEventListener('click', toggle_settings);
$('settings').addEventListener('submit', (e) => e.preventDefault());
$('settings').addEventListener('change', (e) => { save_settings(); if (e.target.id === 'key') ask_model(); });

// A link may bring a prompt: #q=TEXT fills the box, which a person then sends.
function take_link() {
  const text = new URLSearchParams(location.hash.slice(1)).get('q');
  if (text) $('input').value = text;
}

load_settings();
save_settings();
take_link();
draw();
ask_model();
