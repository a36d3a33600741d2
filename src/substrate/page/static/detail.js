// The right pane: a command, what it changed, printed and reached.
import { get } from './api.js';
import { html, useEffect, useState } from './dom.js';
import { FileDiff } from './diff.js';
import { icon } from './icons.js';
import { clock, coloured, safe, size } from './text.js';
import { titleOf } from './rows.js';

const TABS = ['Changes', 'Output', 'Network', 'Details'];

export function Detail({ row, diff, reviewed, act, onWhole, copy }) {
  const [tab, setTab] = useState(0);
  const entry = row.row === 'entry';
  const id = entry && !row.outside ? row.id : null;
  const [record, setRecord] = useState(null);
  useEffect(() => {
    setRecord(null);
    if (!entry) return undefined;
    const stop = new AbortController();
    get(`/v1/entries/${row.id}`, {}, stop.signal).then(setRecord, () => {});
    return () => stop.abort();
  }, [row.id]);
  const tabs = entry ? TABS : TABS.slice(0, 1);
  const on = Math.min(tab, tabs.length - 1);
  return html`<div class="d-head"><div class="d-cmd"><pre>${safe(entry && !row.outside ? row.command : titleOf(row))}</pre>
      ${entry && html`<button class="icon" title="Copy the command" aria-label="Copy the command" onClick=${() => copy(row.command)}>${icon('copy')}</button>`}</div>
    <div class="meta">${entry && row.exit !== null && html`<span>${icon(row.exit ? 'x' : 'check')}exit ${row.exit}</span>`}
      ${row.duration_ms !== null && row.duration_ms !== undefined && html`<span>${(row.duration_ms / 1000).toFixed(2)} s</span>`}
      ${row.agent_id && html`<span>${safe(row.agent_id)}</span>`}<span>${clock(row.ts)}</span><span class="mono">${row.id}</span>
      ${row.prompt_id && html`<span class="mono">${row.prompt_id}</span>`}${entry && !row.changed && html`<span>changed no files</span>`}</div>
    <div class="dtabs" role="tablist">${tabs.map((name, i) => html`<button role="tab" id=${`tab${i}`} aria-selected=${i === on ? 'true' : 'false'} tabindex=${i === on ? 0 : -1} onClick=${() => setTab(i)}>${name}${i === 0 && diff?.files ? html` <span class="count soft">${diff.files.length}</span>` : ''}</button>`)}</div></div>
  <div class="scroll" role="tabpanel" aria-labelledby=${`tab${on}`} tabindex="0">
    ${on === 0 && html`<${Changes} diff=${diff} reviewed=${reviewed} act=${act} onWhole=${onWhole} />`}
    ${on === 1 && (id ? html`<${Output} id=${id} key=${id} />` : html`<div class="msg">An edit prints nothing.</div>`)}
    ${on === 2 && html`<${Network} record=${record} />`}
    ${on === 3 && html`<${Details} record=${record} />`}</div>`;
}

function Changes({ diff, reviewed, act, onWhole }) {
  if (!diff) return html`<div class="msg"></div>`;
  if (diff.error) return html`<div class="msg">${safe(diff.error.message)}. ${safe(diff.error.hint || '')}</div>`;
  if (!diff.files.length) return html`<div class="msg">No file changed.</div>`;
  return diff.files.map(file => html`<${FileDiff} key=${file.path} file=${file} reviewed=${reviewed} act=${act} onWhole=${onWhole} />`);
}

function Output({ id }) {
  const [parts, setParts] = useState({ stdout: null, stderr: null });
  const [wrap, setWrap] = useState(true);
  const load = async (stream, from) => {
    const found = await get(`/v1/output/${id}`, { stream, from }).catch(() => ({ kept: false, lines: [], total: 0 }));
    setParts(old => ({ ...old, [stream]: { ...found, lines: [...(from ? old[stream].lines : []), ...found.lines] } }));
  };
  useEffect(() => { load('stdout', 0); load('stderr', 0); }, [id]);
  const shown = ['stdout', 'stderr'].filter(name => parts[name]?.kept && parts[name].total);
  if (!parts.stdout || !parts.stderr) return null;
  if (!shown.length) {
    const kept = parts.stdout.kept || parts.stderr.kept;
    return html`<div class="msg">${kept ? 'It printed nothing.' : 'Its output was not kept: it went to a terminal or a file, or it is older than 30 days.'}</div>`;
  }
  return html`<div class="outbar"><span class="grow">${shown.map(name => `${name}, ${size(parts[name].bytes)}`).join(' · ')}</span>
      <label class="check"><input type="checkbox" checked=${wrap} onChange=${() => setWrap(!wrap)} /> Wrap lines</label></div>
    ${shown.map(name => html`<div class=${`term ${wrap ? '' : 'nowrap'}`} aria-label=${name}>
      ${shown.length > 1 && html`<div class="dm">${name}</div>`}${parts[name].lines.map(line => html`<div>${coloured(line)}</div>`)}
      ${parts[name].lines.length < parts[name].total && html`<button class="btn sm" onClick=${() => load(name, parts[name].lines.length)}>Show the next 2,000 (of ${parts[name].total.toLocaleString()})</button>`}</div>`)}`;
}

function Network({ record }) {
  if (!record) return null;
  const detail = record.detail || {};
  const list = (name, bad, word) => (detail[name] || []).map(one => html`<div class=${`net ${bad ? 'bad' : ''}`}>${icon(bad ? 'stop' : 'net')}<span>${safe(typeof one === 'string' ? one : JSON.stringify(one))}${word}</span></div>`);
  const found = [...list('net_denied', true, ' denied'), ...list('net_failed', false, ' gave no answer'), ...list('scopes_used', false, '')];
  if (found.length) return html`<div class="msg">${found}</div>`;
  const why = detail.isolation?.reason;
  return html`<div class="msg">${detail.scopes_used ? 'This command reached nothing.' : `Network use was not recorded${why ? `: ${why}` : ''}.`}</div>`;
}

function Details({ record }) {
  if (!record) return null;
  const rows = [];
  const add = (name, value) => {
    if (value === null || value === undefined || value === '') return;
    rows.push(html`<dt>${name}</dt><dd>${safe(typeof value === 'object' ? JSON.stringify(value) : String(value))}</dd>`);
  };
  const { detail = {}, ...own } = record;
  for (const name of ['command_id', 'session_id', 'prompt_id', 'span_id', 'ts', 'kind', 'exit', 'duration_ms', 'recorded_by', 'substrate_git_commit', 'model', 'undone', 'held_state']) add(name, own[name]);
  for (const [name, value] of Object.entries(detail)) if (!['held_causes'].includes(name)) add(name, value);
  return html`<dl class="kv">${rows}</dl>`;
}

/** Where a line came from. */
export function Blame({ where, onClose, onOpen }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const query = { path: where.file.path, lines: `${where.number},${where.number}` };
    if (where.file.encoded) query.encoded = 1;
    get('/v1/blame', query).then(answer => setFound(answer.lines[0] || null), error => setFound({ error }));
  }, [where]);
  const changed = found && !found.error && found.text.trimEnd() !== where.text.trimEnd();
  return html`<div class="pop blame" role="dialog" aria-label="Where this line came from">
    <div><span class="lab">${safe(where.file.path)}, line ${where.number}${changed ? ' has changed since; it is now from' : ' came from'}</span>
      ${!found ? '…' : found.error ? safe(found.error.message) : found.kind === 'external' || !found.command_id
        ? html`<b>Edited outside${found.ts ? `, ${clock(found.ts)}` : ''}. No command did.</b>`
        : html`<code class="cut2">${safe(found.command || found.kind)}</code><div class="meta"><span>${safe(found.agent_id || '')}</span><span>${clock(found.ts)}</span><span class="mono">${found.command_id}</span>${found.prompt_id && html`<span class="mono">${found.prompt_id}</span>`}</div>`}</div>
    <div>${found?.command_id && html`<button class="btn sm" onClick=${() => onOpen(found.command_id)}>Open the command</button> `}<button class="btn sm quiet" onClick=${onClose}>Close <kbd>Esc</kbd></button></div></div>`;
}

