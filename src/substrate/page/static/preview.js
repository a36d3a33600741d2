// What a take-back would do, and the only button that does it.
import { Failed, post } from './api.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './dom.js';
import { Lines, Path, counts } from './diff.js';
import { icon } from './icons.js';
import { firstWord, oneLine, plural, safe } from './text.js';

const WAIT_MS = 150;
const VERB = { undo: 'Take back', rollback: 'Roll back to', redo: 'Bring back' };

const count = (file, sign) => (file.hunks || []).reduce((n, hunk) => n + hunk.lines.filter(line => line[0] === sign).length, 0);

/** `wanted`: what is asked for; `label`: the verb for people; `title`: the command's text. */
export function Preview({ wanted, label, title, events, offline, onClose, onDone }) {
  const [plan, setPlan] = useState(null);
  const [left, setLeft] = useState(() => new Set());
  const [take, setTake] = useState('');
  const [branches, setBranches] = useState('');
  const [state, setState] = useState({ busy: true });
  const [all, setAll] = useState(null);
  const cancel = useRef(null), heading = useRef(null), turn = useRef(0), busy = useRef(false), known = useRef(null);
  const body = () => {
    const out = { ...wanted };
    if (wanted.hunks) { if (take) out.take = take; else out.skip_conflicts = true; return out; }
    const paths = left.size && all ? all.filter(file => !left.has(file.path)).map(file => file.encoded ? { path: file.path, encoded: true } : file.path) : wanted.paths;
    if (paths) out.paths = paths;
    if (take) out.take = take; else out.skip_conflicts = true;
    if (branches) out.branches = branches;
    return out;
  };
  // A quiet question only finds out whether the plan still holds; it never takes the place of a loud one.
  const ask = async quiet => {
    if (quiet && busy.current) return;
    const mine = quiet ? turn.current : ++turn.current;
    if (!quiet) { busy.current = true; setState(old => ({ ...old, busy: true })); }
    try {
      const found = await post('/v1/preview', body());
      if (mine !== turn.current || (quiet && busy.current)) return;
      if (quiet) {
        if (found.plan_id !== known.current) setState({ stale: 'Files or history changed just now.' });
        return;
      }
      known.current = found.plan_id;
      setPlan(found);
      if (!left.size) setAll([...found.files, ...found.conflicts]);
      setState({});
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      if (mine === turn.current && !quiet) setState({ error });
    } finally {
      if (!quiet && mine === turn.current) busy.current = false;
    }
  };
  useEffect(() => {
    const timer = setTimeout(() => ask(false), plan ? WAIT_MS : 0);
    return () => clearTimeout(timer);
  }, [JSON.stringify(wanted), left, take, branches]);
  useEffect(() => { if (events && plan && !state.going) ask(true); }, [events]);
  useLayoutEffect(() => { cancel.current?.focus(); }, []);

  const go = async () => {
    busy.current = true;
    setState({ going: true });
    try {
      onDone(await post('/v1/carry-out', { plan_id: plan.plan_id }), { title, verb: label || wanted.verb });
    } catch (error) {
      busy.current = false;
      setState(error.kind === 'stale' ? { stale: error.message } : { error });
    }
  };
  const toggle = path => setLeft(old => { const next = new Set(old); if (!next.delete(path)) next.add(path); return next; });

  const files = plan ? plan.files : [];
  const some = files.length;
  const of = all ? all.length : some;
  const gone = plan ? plan.deleted.length : 0;
  const off = !plan || state.busy || state.stale || state.error || state.going || offline || (some === 0 && !(plan.besides || []).length);
  const what = wanted.hunks ? plural(wanted.hunks.length, 'hunk') : some === of ? plural(some, 'file') : `${some} of ${of} files`;
  const parts = [['merged', 'merge', 'Merged', 'outside edits and later work kept'], ['restored', 'back', 'Restored', 'as before'], ['deleted', 'trash', 'Deleted', 'made by what is taken back']];
  return html`<section class="pane detail" aria-label="Preview">
    ${state.stale && html`<div class="banner stale" role="alert">${icon('warn')}<span class="grow"><b>This preview is out of date.</b> ${safe(state.stale)} Nothing was taken back.</span><button class="btn sm" onClick=${() => ask(false)}>Preview again</button></div>`}
    ${state.error && html`<div class="banner err" role="alert">${icon('warn')}<span class="grow">${safe(state.error.message)} ${safe(state.error.hint || '')}</span>
      ${/branch/.test(state.error.kind + state.error.message) && !branches && html`<button class="btn sm" onClick=${() => setBranches('files-only')}>Files only</button><button class="btn sm" onClick=${() => setBranches('with-git')}>Files and branch</button>`}</div>`}
    <div class=${`pv-head ${state.busy && plan ? 'greyed' : ''}`}><h2 ref=${heading} tabindex="-1">${VERB[label || wanted.verb]} <code>${safe(oneLine(title).slice(0, 60))}</code>?</h2>
      <div class="dim2">Nothing has changed yet. This is what your files would become.</div>
      ${plan && html`<div class="tiles"><div class="tile">${icon('back')}<b>${plan.restored.length} restored</b><span>as before</span></div>
        <div class=${`tile ${plan.merged.length ? 'y' : ''}`}>${icon('merge')}<b>${plan.merged.length} merged</b><span>later work kept</span></div>
        <div class=${`tile ${plan.conflicts.length ? 'w' : ''}`}>${icon('warn')}<b>${plural(plan.conflicts.length, 'conflict')}</b><span>${plan.conflicts.length ? 'left as they are' : 'nothing to settle'}</span></div>
        <div class="tile">${icon('trash')}<b>${gone} deleted</b><span>${gone ? 'made by what is taken back' : 'no file goes away'}</span></div></div>`}</div>
    <div class=${`scroll ${state.busy && plan ? 'greyed' : ''}`} tabindex="0" aria-label="Files">
      ${plan && !some && !plan.conflicts.length && html`<div class="msg">${left.size ? 'No file is chosen.' : 'These files are already as before.'}</div>`}
      ${plan && (plan.conflicts.length > 0 || take) && html`<div class="sect">${icon('warn')}Conflict <span class="dim">later work and this take-back want different lines</span><span class="grow"></span>
        <button class="btn sm" aria-pressed=${take ? 'false' : 'true'} onClick=${() => setTake('')}>Keep mine</button><button class="btn sm" aria-pressed=${take ? 'true' : 'false'} onClick=${() => setTake('theirs')}>Take before</button></div>
        ${plan.conflicts.map(file => html`<div class="frow" key=${file.path}><span></span><span class="k">!</span><${Path} path=${file.path} encoded=${file.encoded} /><span class="dim notphone">${safe(file.reason)}</span><span class="tag warn">left as it is</span></div>`)}`}
      ${parts.map(([status, sign, word, more]) => {
        const own = files.filter(file => file.status === status);
        const out = status === 'restored' ? (all || []).filter(file => left.has(file.path)) : [];
        if (!own.length && !out.length) return '';
        return html`<div class="sect">${icon(sign)}${word} <span class="dim">${more}</span><span class="grow"></span><span class="dim notphone">now → after</span></div>
          ${own.map(file => html`<${Planned} key=${file.path} file=${file} on=${true} fixed=${!!wanted.hunks || of === 1} toggle=${toggle} />`)}
          ${out.map(file => html`<${Planned} key=${file.path} file=${{ ...file, hunks: [] }} on=${false} toggle=${toggle} />`)}`;
      })}
      ${plan?.besides?.map(line => html`<div class="frow"><span></span><span></span><span class="path cut">${safe(line)}</span></div>`)}
      ${plan?.notes?.map(line => html`<div class="msg">${safe(line)}</div>`)}</div>
    <div class="act"><span class="note">${state.stale ? 'Take back is off until you preview again.' : html`<span class="cut2">Later commands stay. What this replaces is kept.</span>${plan && html`<span class="cut2 notphone">In a terminal: <code>${safe(plan.in_a_terminal)}</code></span>`}`}</span>
      <button class="btn" ref=${cancel} onClick=${onClose}>Cancel</button>
      <button class="btn solid" id="carry-out" disabled=${!!off} onClick=${go} onKeyDown=${e => { if (e.key === 'Enter' || e.repeat) e.preventDefault(); }}><span class="cut">${VERB[label || wanted.verb]} <code>${safe(firstWord(title))}</code>, ${what}${gone ? ` and ${gone} deleted` : ''}</span></button></div></section>`;
}

function Planned({ file, on, fixed, toggle }) {
  const [open, setOpen] = useState(true);
  const yours = new Set(file.yours || []);
  return html`<div class="frow">${fixed ? html`<span></span>` : html`<input type="checkbox" aria-label=${`Take back ${file.path}`} checked=${on} onChange=${() => toggle(file.path)} />`}
      <span class="k">${file.status === 'deleted' ? 'D' : 'M'}</span><${Path} path=${file.path} encoded=${file.encoded} />
      ${yours.size ? html`<span class="tag you">${icon('user')}${plural(yours.size, 'outside line')} kept</span>` : html`<span></span>`}
      <button class="btn sm quiet" aria-expanded=${open ? 'true' : 'false'} onClick=${() => setOpen(!open)}>${counts(count(file, '+'), count(file, '-'))}</button></div>
    ${on && open && (file.binary ? html`<div class="msg">Binary</div>` : file.too_many_lines ? html`<div class="msg">${file.too_many_lines.toLocaleString()} lines</div>` : (file.hunks || []).map(hunk => html`<${Lines} lines=${hunk.lines} yours=${yours} />`))}`;
}
