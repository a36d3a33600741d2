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
    <${World} key=${one.world_id} world=${one} onDone=${onDone} offline=${offline} /></div>`;
}

function World({ world, onDone, offline }) {
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [asks, setAsks] = useState(null);
  const load = verb => post('/v1/preview', { verb, scope: world.world_id });
  useEffect(() => { load('apply').then(setPlan, setError); }, [world.world_id]);
  const go = async chosen => {
    try { onDone(await post('/v1/carry-out', { plan_id: chosen.plan_id }), { title: world.command, verb: chosen.verb }); } catch (failed) { setError(failed); }
  };
  const lines = plan ? patched(plan.patch) : new Map();
  const groups = plan ? [['deleted', plan.files.filter(file => file.change === 'deleted')], ['code', plan.files.filter(file => file.change !== 'deleted' && file.runs_code)], ['other', plan.files.filter(file => file.change !== 'deleted' && !file.runs_code)]] : [];
  const heading = { deleted: n => [icon('trash'), plural(n, 'deletion')], code: n => [icon('bolt'), `${plural(n, 'change')} that run code`], other: n => [icon('file'), plural(n, 'other file')] };
  return html`<section class="pane detail" aria-label="Held world"><div class="d-head"><div class="d-cmd"><pre>${safe(world.command)}</pre></div><div class="meta"><span>${safe(world.agent_id || '')}</span><span>held since ${clock(world.ts)}</span><span class="mono">${world.world_id}</span></div></div>
    ${error && html`<div class="banner err" role="alert">${icon('warn')}<span>${safe(error.message)} ${safe(error.hint || '')}</span></div>`}
    <div class="scroll" tabindex="0">${plan?.would_be_held && html`<div class="banner stale">${icon('warn')}<span>${safe(plan.would_be_held)}</span></div>`}
      ${plan?.conflicts.map(file => html`<div class="frow"><span></span><span class="k">!</span><${Path} path=${file.path} /><span class="dim">${safe(file.reason)}</span><span class="tag warn">collides</span></div>`)}
      ${groups.map(([name, files]) => files.length ? html`<div class=${name === 'deleted' ? 'delbox' : ''}><div class="sect">${heading[name](files.length)}</div>
        ${files.map(file => html`<div class="frow"><span></span><span class="k">${file.change[0].toUpperCase()}</span><${Path} path=${file.path} encoded=${file.encoded} /><span></span>${counts(file.additions, file.deletions)}</div>
          ${lines.get(file.path)?.length ? html`<${Lines} lines=${lines.get(file.path).slice(0, 2000)} />` : ''}`)}</div>` : '')}</div>
    ${asks ? html`<div class="act three"><span class="note"><b>Discard what <code>${safe(oneLine(world.command).slice(0, 40))}</code> did?</b> ${plural(asks.files.length, 'file')} are dropped. It can be applied again while the trash keeps it.</span>
        <button class="btn" onClick=${() => setAsks(null)} ref=${el => el?.focus()}>Keep it</button><button class="btn" disabled=${offline} onClick=${() => go(asks)}>Discard ${plural(asks.files.length, 'file')}</button></div>`
      : html`<div class="act three"><span class="note">Nothing of it is in your project yet. In a terminal: <code>${plan ? safe(plan.in_a_terminal) : ''}</code></span>
        <button class="btn quiet" onClick=${() => load('discard').then(setAsks, setError)}>Discard all…</button>
        <button class="btn solid" disabled=${!plan || offline} onClick=${() => go(plan)}><span class="cut">Bring in ${plan ? plural(plan.files.length, 'file') : '…'}${plan?.deleted.length ? `, ${plural(plan.deleted.length, 'deletion')}` : ''}</span></button></div>`}</section>`;
}
