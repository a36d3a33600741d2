// Held worlds: commands that have run, and of which nothing is in the project yet.
import { get, post } from './api.js';
import { html, useEffect, useState } from './dom.js';
import { Lines, Path, counts } from './diff.js';
import { icon } from './icons.js';
import { clock, oneLine, plural, safe } from './text.js';

/** A patch of git's as lines for each file. */
function patched(text) {
  const out = new Map();
  let lines = null, before = null, old = 0, now = 0;
  for (const line of text.split('\n')) {
    if (line.startsWith('diff --git ')) { lines = null; old = now = 0; continue; }
    const name = lines ? null : /^(?:---|\+\+\+) [ab]\/(.*)$/.exec(line);
    if (name) { before = []; out.set(name[1], before); continue; }
    const at = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (at) { lines = before; old = +at[1]; now = +at[2]; continue; }
    if (!lines) continue;
    if (line[0] === '+') lines.push(['+', null, now++, line.slice(1)]);
    else if (line[0] === '-') lines.push(['-', old++, null, line.slice(1)]);
    else if (line[0] === ' ') lines.push([' ', old++, now++, line.slice(1)]);
  }
  return out;
}

export function Held({ events, onDone, offline }) {
  const [worlds, setWorlds] = useState(null);
  const [at, setAt] = useState(0);
  useEffect(() => { get('/v1/worlds', { n: 500 }).then(found => setWorlds(found.worlds.filter(one => one.state !== 'running')), () => setWorlds([])); }, [events]);
  if (!worlds) return html`<div class="panes"></div>`;
  if (!worlds.length) return html`<div class="msg"><h1>Nothing is waiting.</h1><code>--hold</code> makes a command wait here before it touches your files.</div>`;
  const one = worlds[Math.min(at, worlds.length - 1)];
  return html`<div class="panes"><section class="pane list" aria-label="Held worlds"><div class="side-h">Waiting for you <span class="count soft">${worlds.length}</span></div>
    <div class="scroll inbox">${worlds.map((world, i) => html`<button key=${world.world_id} class=${`mail ${world === one ? 'sel' : ''}`} aria-current=${world === one ? 'true' : null} onClick=${() => { setAt(i); document.body.dataset.pane = 'detail'; }}>${icon('hold')}<code class="cut">${safe(oneLine(world.command))}</code><span class="dim">${clock(world.ts)}</span><span class="sub">${safe(world.reason || world.state)}</span><span class="tg"><span class="tag">${world.state}</span></span></button>`)}
      <div class="msg">A held world has run, and nothing of it is in your project. It waits until you decide; nothing is thrown away by itself.</div></div></section>
    <${World} key=${one.world_id} world=${one} listed=${worlds} onDone=${onDone} offline=${offline} /></div>`;
}

const named = file => file.encoded ? { path: file.path, encoded: true } : file.path;

/** One world. Deletions and changes that run code have to be chosen; the rest is.
 *  It is asked again when the list was: a world that is gone has no preview. */
function World({ world, listed, onDone, offline }) {
  const [whole, setWhole] = useState(null);
  const [left, setLeft] = useState(null);
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [asks, setAsks] = useState(null);
  const ask = (verb, paths) => post('/v1/preview', { verb, scope: world.world_id, ...(paths ? { paths } : {}) });
  useEffect(() => {
    ask('apply').then(found => {
      if (found.plan_id === whole?.plan_id) return;
      const seen = new Set(whole?.files.map(file => file.path));
      const out = file => seen.has(file.path) ? left.has(file.path) : file.change === 'deleted' || file.runs_code;
      setWhole(found);
      setLeft(new Set(found.files.filter(out).map(file => file.path)));
    }, setError);
  }, [world.world_id, listed]);
  const chosen = whole && left ? whole.files.filter(file => !left.has(file.path)) : [];
  useEffect(() => {
    if (!whole || !left) return undefined;
    setPlan(null);
    if (!chosen.length) return undefined;
    if (!left.size) { setPlan(whole); return undefined; }
    let stopped = false;
    const timer = setTimeout(() => ask('apply', chosen.map(named)).then(found => { if (!stopped) { setPlan(found); setError(null); } }, failed => { if (!stopped) setError(failed); }), 150);
    return () => { stopped = true; clearTimeout(timer); };
  }, [whole, left]);
  const go = async chosenPlan => {
    try { onDone(await post('/v1/carry-out', { plan_id: chosenPlan.plan_id }), { title: world.command, verb: chosenPlan.verb }); } catch (failed) { setError(failed); }
  };
  const toggle = path => setLeft(old => { const next = new Set(old); if (!next.delete(path)) next.add(path); return next; });
  const lines = whole ? patched(whole.patch) : new Map();
  const files = whole ? whole.files : [];
  const groups = [['deleted', files.filter(file => file.change === 'deleted')], ['code', files.filter(file => file.change !== 'deleted' && file.runs_code)], ['other', files.filter(file => file.change !== 'deleted' && !file.runs_code)]];
  const heading = { deleted: n => [icon('trash'), plural(n, 'deletion')], code: n => [icon('bolt'), n === 1 ? '1 change that runs code' : `${n} changes that run code`], other: n => [icon('file'), plural(n, 'other file')] };
  const gone = chosen.filter(file => file.change === 'deleted').length;
  return html`<section class="pane detail" aria-label="Held world"><div class="d-head"><div class="d-cmd"><pre>${safe(world.command)}</pre></div><div class="meta"><span>${safe(world.agent_id || '')}</span><span>held since ${clock(world.ts)}</span><span class="mono">${world.world_id}</span></div></div>
    ${error && html`<div class="banner err" role="alert">${icon('warn')}<span>${safe(error.message)} ${safe(error.hint || '')}</span></div>`}
    <div class="scroll" tabindex="0" aria-label="Files">${whole?.would_be_held && html`<div class="banner stale">${icon('warn')}<span>${safe(whole.would_be_held)}</span></div>`}
      ${whole?.conflicts.map(file => html`<div class="frow"><span></span><span class="k">!</span><${Path} path=${file.path} /><span class="dim">${safe(file.reason)}</span><span class="tag warn">collides</span></div>`)}
      ${groups.map(([name, own]) => own.length ? html`<div class=${name === 'deleted' ? 'delbox' : ''}><div class="sect">${heading[name](own.length)}</div>
        ${own.map(file => html`<div class="frow"><input type="checkbox" aria-label=${`Bring in ${file.path}`} checked=${!left?.has(file.path)} onChange=${() => toggle(file.path)} /><span class="k">${file.change[0].toUpperCase()}</span><${Path} path=${file.path} encoded=${file.encoded} /><span></span>${counts(file.additions, file.deletions)}</div>
          ${lines.get(file.path)?.length ? html`<${Lines} lines=${lines.get(file.path).slice(0, 2000)} />` : ''}`)}</div>` : '')}</div>
    ${asks ? html`<div class="act three"><span class="note"><b>Discard what <code>${safe(oneLine(world.command).slice(0, 40))}</code> did?</b> ${plural(asks.files.length, 'file')} are dropped, ${plural(asks.deleted.length, 'deletion')} do not happen. It can be applied again while the trash keeps it.</span>
        <button class="btn" onClick=${() => setAsks(null)} ref=${el => el?.focus()}>Keep it</button><button class="btn" id="discard" disabled=${offline} onClick=${() => go(asks)}>Discard ${plural(asks.files.length, 'file')}</button></div>`
      : html`<div class="act three"><span class="note"><span class="cut2">What you leave out stays held.</span>${plan && html`<span class="cut2 notphone">In a terminal: <code>${safe(plan.in_a_terminal)}</code></span>`}</span>
        <button class="btn quiet" disabled=${offline} onClick=${() => ask('discard').then(setAsks, setError)}>Discard all…</button>
        <button class="btn solid" id="bring-in" disabled=${!plan || offline} onClick=${() => go(plan)}><span class="cut">Bring in ${chosen.length === files.length ? plural(files.length, 'file') : `${chosen.length} of ${files.length} files`}${gone ? `, ${plural(gone, 'deletion')}` : ''}</span></button></div>`}</section>`;
}
