// The page: state, keys, and which screen is shown.
import { enter, events, get, post } from './api.js';
import { html, render, useEffect, useMemo, useRef, useState } from './dom.js';
import { counts } from './diff.js';
import { Blame, Detail } from './detail.js';
import { Held } from './held.js';
import { icon } from './icons.js';
import { Help } from './help.js';
import { Preview } from './preview.js';
import { Rows, Timeline, pageOf, titleOf } from './rows.js';
import { firstWord, oneLine, plural, safe } from './text.js';

const SCOPES = [['command', 'This command'], ['prompt', 'This prompt'], ['session', 'Session'], ['since', 'Since here'], ['range', 'A..B']];
const THEMES = ['system', 'light', 'dark'];

/** The scope's text for the server; null where it means nothing for this row. */
function scopeText(kind, row, range) {
  if (!row) return null;
  if (kind === 'range') return range[0] && range[1] ? `${range[0].id}..${range[1].id}` : null;
  if (kind === 'since') return row.row === 'entry' ? `since:${row.id}` : null;
  if (kind === 'prompt') return row.row === 'prompt' ? row.id : row.prompt_id || null;
  if (kind === 'session') return row.session_id || null;
  return row.row === 'entry' ? row.id : null;
}

function App({ first }) {
  const [settings, setSettings] = useState(first);
  const [screen, setScreen] = useState('timeline');
  const [tick, redraw] = useState(0);
  const [seen, setSeen] = useState(0);
  const [filter, setFilter] = useState({ names: [], q: '' });
  const [index, setIndex] = useState(-1);
  const [row, setRow] = useState(null);
  const [scope, setScope] = useState('command');
  const [range, setRange] = useState([null, null]);
  const [diff, setDiff] = useState(null);
  const [preview, setPreview] = useState(null);
  const [after, setAfter] = useState(null);
  const [blame, setBlame] = useState(null);
  const [help, setHelp] = useState(false);
  const [now, setNow] = useState({ running: [], held: 0 });
  const [lost, setLost] = useState(null);
  const [end, setEnd] = useState(true);
  const search = useRef(null);
  const view = useRef({});

  const rows = useMemo(() => new Rows({ filter: filter.names.join(','), q: filter.q }, () => redraw(n => n + 1)), [filter]);
  useEffect(() => { rows.want(0); }, [rows]);
  useEffect(() => {
    const system = matchMedia('(prefers-color-scheme: dark)');
    const paint = () => { document.documentElement.dataset.theme = settings.theme === 'system' ? (system.matches ? 'dark' : 'light') : settings.theme; };
    paint();
    system.addEventListener('change', paint);
    return () => system.removeEventListener('change', paint);
  }, [settings.theme]);

  // Something was recorded: batch, ask again for what is shown.
  useEffect(() => {
    let timer = null;
    const later = () => { timer ??= setTimeout(() => { timer = null; if (!document.hidden) setSeen(n => n + 1); }, 200); };
    document.addEventListener('visibilitychange', later);
    const stop = events(event => { if (event.name !== 'hello') later(); }, setLost);
    return () => { stop(); clearTimeout(timer); document.removeEventListener('visibilitychange', later); };
  }, []);
  useEffect(() => {
    get('/v1/now').then(setNow, () => {});
    if (!seen) return;
    const pages = new Set([...rows.asked.keys()].slice(-4).concat(pageOf(index), pageOf((rows.total ?? 1) - 1), pageOf(rows.total ?? 0)));
    rows.refresh([...pages]).then(() => {
      if (row) { const at = rows.find(row.id); if (at >= 0) { setIndex(at); setRow(rows.at(at)); } }
    });
  }, [seen]);

  // Open the newest command by itself.
  useEffect(() => {
    if (row || rows.total === null || rows.total === 0) return;
    const last = rows.at(rows.total - 1);
    if (last) select(rows.total - 1, last);
  }, [tick]);

  const text = scopeText(scope, row, range);
  useEffect(() => {
    setDiff(null);
    if (!text || (scope === 'command' && row.row === 'entry' && !row.changed)) { if (text) setDiff({ files: [] }); return undefined; }
    const stop = new AbortController();
    get('/v1/diff', { scope: text }, stop.signal).then(found => setDiff({ ...found, of: text }), error => { if (error.name !== 'AbortError') setDiff({ files: [], error }); });
    return () => stop.abort();
  }, [text, row?.undone]);

  const select = (at, found, shift) => {
    if (!found) return;
    if (shift && row?.row === 'entry' && found.row === 'entry') {
      const ends = at > index ? [row, found] : [found, row];
      setRange(ends); setScope('range');
    } else if (found.row !== 'entry') setScope(found.row === 'prompt' ? 'prompt' : 'session');
    else if (['prompt', 'session'].includes(scope) && row?.row !== 'entry') setScope('command');
    setIndex(at); setRow(found); setBlame(null); setPreview(null);
  };
  const open = () => { document.body.dataset.pane = 'detail'; };
  const move = by => {
    const at = Math.min(Math.max(index + by, 0), (rows.total || 1) - 1);
    const found = rows.at(at);
    if (found) select(at, found); else { setIndex(at); rows.want(pageOf(at)).then(() => select(at, rows.at(at))); }
  };
  const jump = by => {
    for (let at = index + by; at >= 0 && at < (rows.total || 0); at += by) {
      const found = rows.at(at);
      if (!found) return;
      if (found.row !== 'entry') { select(at, found); return; }
    }
  };
  const changed = diff && diff.files.length > 0;
  const title = !row ? '' : scope === 'range' ? text || '' : scope === 'since' ? `what came after ${oneLine(row.command)}` : titleOf(row);
  const takeBack = more => {
    if (!text || !(changed || more)) return;
    setBlame(null);
    setPreview({ wanted: { verb: 'undo', scope: text, ...more }, title });
    open();
  };
  const act = {
    file: file => takeBack({ paths: [file.encoded ? { path: file.path, encoded: true } : file.path] }),
    hunk: (file, hunk) => takeBack({ hunks: [hunk.id] }),
    line: (file, number, line) => setBlame({ file, number, text: line }),
    review: async (ids, on) => {
      const at = new Date();
      const local = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
      const found = await post('/page/settings', { reviewed: Object.fromEntries(ids.map(id => [id, on ? local : null])) });
      setSettings(old => ({ ...old, reviewed: found.reviewed }));
    },
  };
  const hunkIds = (diff?.files || []).flatMap(file => file.hunks.map(hunk => hunk.id)).filter(Boolean);
  const done = hunkIds.filter(id => settings.reviewed[id]).length;
  const redo = () => { if (after?.answer.command_id) { setPreview({ wanted: { verb: 'undo', scope: after.answer.command_id }, label: after.verb === 'redo' ? 'undo' : 'redo', title: after.title }); setAfter(null); setScreen('timeline'); } };
  const finished = (answer, { title: of, verb }) => { setPreview(null); setAfter({ answer, title: of, verb }); setSeen(n => n + 1); };
  const copy = words => navigator.clipboard?.writeText(words);
  const show = async id => {
    const at = rows.find(id);
    if (at >= 0) return select(at, rows.at(at));
    setRow(await get(`/v1/entries/${id}`).then(found => ({ row: 'entry', id, command: found.command, ts: found.ts, kind: found.kind, exit: found.exit, changed: !!found.substrate_git_commit, files: found.changed_files.length, agent_id: found.agent_id, session_id: found.session_id, prompt_id: found.prompt_id, duration_ms: found.duration_ms })));
    setBlame(null);
    return setScope('command');
  };

  const keys = {
    j: () => move(1), k: () => move(-1), '[': () => jump(-1), ']': () => jump(1), u: () => takeBack(), U: redo,
    n: () => hunkTo(1), p: () => hunkTo(-1), Enter: open, r: () => act.review(hunkIds, done < hunkIds.length), c: () => row && copy(row.command),
    m: () => { if (row?.row !== 'entry') return; setRange(old => !old[0] || old[1] ? [row, null] : [old[0], row]); setScope('range'); },
    h: () => setScreen(screen === 'held' ? 'timeline' : 'held'), f: () => document.querySelector('.chip')?.focus(), '/': () => search.current?.focus(), '?': () => setHelp(true),
    Escape: () => { if (help) setHelp(false); else if (blame) setBlame(null); else if (preview) { setPreview(null); requestAnimationFrame(() => document.querySelector('.row.sel')?.focus()); } else if (document.body.dataset.pane === 'detail') document.body.dataset.pane = 'list'; },
    ...Object.fromEntries(SCOPES.map(([name], i) => [String(i + 1), () => { if (scopeText(name, row, range)) setScope(name); }])),
  };
  view.current = keys;
  useEffect(() => {
    const pressed = e => {
      const typing = e.target.matches?.('input:not([type=checkbox]), textarea, select');
      if (e.ctrlKey || e.metaKey || e.altKey || (typing && e.key !== 'Escape')) return;
      if (e.key === 'Enter' && e.target.closest?.('button, a, input, dialog')) return;
      const found = view.current[e.key];
      if (!found) return;
      e.preventDefault();
      if (typing) e.target.blur(); else found();
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, []);

  const chip = (name, word, sign) => html`<button class="chip" aria-pressed=${filter.names.includes(name) ? 'true' : 'false'} onClick=${() => { setRow(null); setFilter(old => ({ ...old, names: old.names.includes(name) ? old.names.filter(one => one !== name) : [...old.names, name] })); }}>${icon(sign)}${word}</button>`;
  const files = row && index >= 0 && scope === 'command' && diff?.files && rows.at(index)?.id === row.id ? { index, list: diff.files.slice(0, 50) } : null;
  const inScope = (one, at) => scope === 'command' ? one.id === row?.id : scope === 'prompt' ? text && (one.prompt_id === text || one.id === text) : scope === 'session' ? text && one.session_id === text && !one.outside
    : scope === 'since' ? at > index && one.row === 'entry' && !one.outside : range[0] && range[1] && one.ts > range[0].ts && one.ts <= range[1].ts && one.row === 'entry' && !one.outside;
  const sum = list => list.reduce(([a, d], file) => [a + file.additions, d + file.deletions], [0, 0]);
  const undone = scope === 'command' && row?.undone;

  return html`<a class="skip" href="#main">Skip to the timeline</a>
  <header class="top"><span class="brand"><span class="mark">${icon('mark')}</span><span class="cut">${safe(settings.project)}</span></span>
    <button class="brand phoneback" onClick=${() => { setPreview(null); document.body.dataset.pane = 'list'; }}>${icon('left')}Back</button>
    <nav class="tabs" aria-label="Screens"><button aria-current=${screen === 'timeline' ? 'page' : null} onClick=${() => setScreen('timeline')}>${icon('line')}Timeline</button>
      <button aria-current=${screen === 'held' ? 'page' : null} onClick=${() => setScreen('held')}>${icon('hold')}Held${now.held > 0 ? html` <span class="count">${now.held}</span>` : ''}</button></nav><span class="grow"></span>
    ${settings.is_root && html`<span class="tag warn">as root</span>`}${settings.read_only && html`<span class="tag">read only</span>`}
    ${lost ? html`<span class="lost" role="alert">Not connected. Trying again in ${lost} s</span>` : now.running.length > 0 && html`<span class="livepill"><i class="dot pulse"></i><span class="cut">${safe(now.running[0].agent_id || '')} runs <code>${safe(oneLine(now.running[0].command).slice(0, 30))}</code></span></span>`}
    <span class="search">${icon('find')}<input ref=${search} type="search" placeholder="Search" aria-label="Search commands" onInput=${e => { const q = e.target.value; clearTimeout(view.timer); view.timer = setTimeout(() => { setRow(null); setFilter(old => ({ ...old, q })); }, 150); }} /><kbd>/</kbd></span>
    <button class="icon" title=${`Theme: ${settings.theme}`} aria-label=${`Theme: ${settings.theme}`} onClick=${async () => { const theme = THEMES[(THEMES.indexOf(settings.theme) + 1) % 3]; const found = await post('/page/settings', { theme }); setSettings(old => ({ ...old, theme: found.theme })); }}>${icon('sun')}</button>
    <button class="icon" title="Keys" aria-label="Keys" onClick=${() => setHelp(true)}>${icon('help')}</button></header>
  <main class="app" id="main"><h1 class="vh">${safe(settings.project)}: what happened</h1>${screen === 'held' ? html`<${Held} events=${seen} onDone=${finished} offline=${!!lost || settings.read_only} />` : rows.total === 0 && !filter.q && !filter.names.length ? html`<${Empty} project=${settings.project} />` : html`
    <div class="scope" role="region" aria-label="Scope and actions"><div class="seg" role="radiogroup" aria-label="Scope">${SCOPES.map(([name, word]) => html`<button role="radio" aria-checked=${scope === name ? 'true' : 'false'} disabled=${!scopeText(name, row, range)} onClick=${() => setScope(name)}>${word}</button>`)}</div>
      <select class="btn scope-sel phoneonly" aria-label="Scope" value=${scope} onChange=${e => setScope(e.target.value)}>${SCOPES.map(([name, word]) => html`<option value=${name} disabled=${!scopeText(name, row, range)}>${word}</option>`)}</select>
      <span class="sum">${changed && html`<span>${plural(diff.files.length, 'file')}</span>${counts(...sum(diff.files))}<span class="lbl wide">${done} of ${plural(hunkIds.length, 'hunk')} reviewed</span>`}</span><span class="grow"></span>
      <button class="btn quiet notphone" disabled=${!hunkIds.length} onClick=${() => act.review(hunkIds, done < hunkIds.length)}>${icon('check')}Mark reviewed <kbd>r</kbd></button>
      ${!preview && html`<button class="btn solid" id="take-back" disabled=${!changed || undone || !!lost || settings.read_only} title=${changed ? '' : 'This changed no files'} onClick=${() => takeBack()}>${icon('back')}${undone ? 'Taken back' : 'Take back…'} <kbd>u</kbd></button>`}</div>
    <div class="panes"><section class="pane list" aria-label="Timeline"><div class="tl-head" role="toolbar" aria-label="Filters">${chip('changed', 'Changed files', 'file')}${chip('failed', 'Failed', 'x')}${chip('network', 'Network', 'net')}<span class="grow"></span><span class="dim wide">${rows.total === null ? '' : plural(rows.total, 'row')}</span></div>
        ${rows.total === 0 ? html`<div class="msg">No command matches. <button class="btn sm" onClick=${() => { search.current.value = ''; setFilter({ names: [], q: '' }); }}>Clear filters</button></div>` : html`<${Timeline} rows=${rows} selected=${index} files=${files} inScope=${inScope} onSelect=${(at, found, shift) => { select(at, found, shift); if (innerWidth <= 720) open(); }} onOpen=${open} end=${end} onEnd=${setEnd} />`}
        <div class="tl-foot"><span class="legend"><i></i>agent</span><span class="legend"><i class="y"></i>outside</span><span class="grow"></span><span><kbd>j</kbd> <kbd>k</kbd> move</span><span><kbd>[</kbd> <kbd>]</kbd> prompt</span><span class="wide"><kbd>u</kbd> take back</span><span><kbd>?</kbd> keys</span></div></section>
      ${preview ? html`<${Preview} key=${JSON.stringify(preview)} wanted=${preview.wanted} label=${preview.label} title=${preview.title} events=${seen} offline=${!!lost || settings.read_only} onClose=${() => keys.Escape()} onDone=${finished} />`
        : html`<section class="pane detail" aria-label="Command">${row && html`<${Detail} row=${row} diff=${diff} reviewed=${settings.reviewed} act=${settings.read_only ? null : act} copy=${copy} onWhole=${file => get('/v1/diff', { scope: text, path: file.path, whole: 1 }).then(found => setDiff(old => ({ ...old, files: old.files.map(one => found.files.find(other => other.path === one.path) || one) })))} />`}
          ${blame && html`<${Blame} where=${blame} onClose=${() => setBlame(null)} onOpen=${show} />`}</section>`}</div>`}
    ${after && html`<${After} after=${after} onRedo=${redo} onClose=${() => setAfter(null)} copy=${copy} />`}</main>
  <nav class="phonenav" aria-label="Screens on a phone"><button aria-current=${screen === 'timeline' ? 'page' : null} onClick=${() => { setScreen('timeline'); document.body.dataset.pane = 'list'; }}>${icon('line')}Timeline</button><button aria-current=${screen === 'held' ? 'page' : null} onClick=${() => { setScreen('held'); document.body.dataset.pane = 'list'; }}>${icon('hold')}Held${now.held > 0 ? html`<span class="count">${now.held}</span>` : ''}</button></nav>
  ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  <div role="status" aria-live="polite" class="vh">${after ? 'Done' : ''}</div>`;
}

function hunkTo(by) {
  const all = [...document.querySelectorAll('.h-head')], box = document.querySelector('.detail .scroll');
  if (!box || !all.length) return;
  const top = box.getBoundingClientRect().top + 40;
  const next = by > 0 ? all.find(one => one.getBoundingClientRect().top > top + 2) : all.reverse().find(one => one.getBoundingClientRect().top < top - 2);
  if (next) box.scrollTop += next.getBoundingClientRect().top - top;
}

function After({ after, onRedo, onClose, copy }) {
  const { answer, title, verb } = after;
  const n = name => (answer[name] || []).length;
  const parts = [n('restored') && `${n('restored')} restored`, n('merged') && `${n('merged')} merged`, n('deleted') && `${n('deleted')} deleted`, (n('conflicts') || n('kept')) && `${n('conflicts') + n('kept')} left as it was`, n('changed_files') && plural(n('changed_files'), 'file')].filter(Boolean);
  const word = { apply: 'Brought in', discard: 'Discarded', redo: 'Brought back', rollback: 'Rolled back' }[verb] || 'Took back';
  return html`<div class="after-bar" role="status"><span class="cut grow"><b>${word}</b> <code>${safe(firstWord(title))}</code>${parts.length ? `: ${parts.join(', ')}.` : '.'}</span>
    ${answer.recover_with && html`<span class="cmd"><code class="cut">${safe(answer.recover_with)}</code><button class="btn sm quiet" onClick=${() => copy(answer.recover_with)}>${icon('copy')}Copy</button></span>`}
    ${answer.command_id && verb !== 'discard' && html`<button class="btn sm" id="redo" onClick=${onRedo}>Redo…</button>`}<button class="icon" title="Close" aria-label="Close" onClick=${onClose}>${icon('x')}</button></div>`;
}

function Empty({ project }) {
  return html`<div class="scroll"><div class="empty"><div><h1>Nothing recorded here yet</h1><p>Connect your coding agent once. From then on every command it runs in <b>${safe(project)}</b> shows up on this page, with what it changed, and a way to take it back.</p></div>
    <div class="card"><div class="step"><i>1</i><div><b>Connect your agent</b><div class="snip"><code>substrate connect</code></div></div></div><div class="step"><i>2</i><div><b>Start it as you always do</b>, or run something yourself<div class="snip"><code>substrate -c 'echo hello > hello.txt'</code></div></div></div>
    <div class="wait">Waiting for the first command. This page opens it by itself.</div></div></div></div>`;
}

const root = document.getElementById('root');
enter().then(settings => {
  document.title = `Substrate — ${settings.project}`;
  render(html`<${App} first=${settings} />`, root);
}, error => {
  render(html`<div class="msg" role="alert"><h1>${error.kind === 'lost' ? 'Substrate stopped.' : 'This link was used already.'}</h1><p>Run <code>substrate ui</code> again for a new one.</p></div>`, root);
});
