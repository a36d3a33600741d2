// Diffs as data: each line is a row of text nodes.
import { html, useState } from './dom.js';
import { icon } from './icons.js';
import { safe, size } from './text.js';

const CLASS = { '+': 'a', '-': 'd', ' ': '' }, SIGN = { '+': '+', '-': '−', ' ': '' }, WORD = { '+': 'added', '-': 'removed', ' ': '' };

export const counts = (added, removed) => html`<span class="pm"><span class="plus">${added ? `+${added}` : ''}</span><span class="minus">${removed ? `−${removed}` : ''}</span></span>`;

export function Path({ path, encoded }) {
  const cut = path.lastIndexOf('/') + 1;
  return html`<span class="path cut"><span class="dim">${safe(path.slice(0, cut))}</span><b>${safe(path.slice(cut))}</b>${encoded ? html` <span class="tag" title="Its name has bytes that are not text">encoded</span>` : ''}</span>`;
}

/** What differs within a removed and an added line that stand for each other. */
function marks(lines) {
  const out = new Map();
  for (let i = 0; i < lines.length;) {
    if (lines[i][0] !== '-') { i++; continue; }
    let minus = i, plus;
    while (i < lines.length && lines[i][0] === '-') i++;
    plus = i;
    while (i < lines.length && lines[i][0] === '+') i++;
    if (plus - minus !== i - plus) continue;
    for (let n = 0; n < plus - minus; n++) {
      const a = lines[minus + n][3], b = lines[plus + n][3];
      let head = 0, tail = 0;
      while (head < a.length && head < b.length && a[head] === b[head]) head++;
      while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
      if (head + tail === 0) continue;
      out.set(minus + n, [head, a.length - tail]);
      out.set(plus + n, [head, b.length - tail]);
    }
  }
  return out;
}

export function Lines({ lines, yours, onLine }) {
  const within = marks(lines);
  let before = false;
  return html`<div class="code" role="table" aria-label="Lines">${lines.map(([sign, old, now, text], at) => {
    const mine = sign === ' ' && yours?.has(old);
    const first = mine && !before;
    before = mine;
    const part = within.get(at);
    const shown = part && part[1] > part[0]
      ? [safe(text.slice(0, part[0])), html`<mark>${safe(text.slice(...part))}</mark>`, safe(text.slice(part[1]))] : safe(text);
    const number = now ?? old;
    return html`<div class=${`ln ${mine ? 'y' : CLASS[sign]}`} role="row"><b role="cell">${old ?? ''}</b>
      <b role="cell">${onLine && now ? html`<button title="Where this line came from" tabindex="-1" onClick=${() => onLine(number, text)}>${now}</button>` : now ?? ''}</b>
      <u role="cell"><span class="vh">${mine ? 'outside edit, kept' : WORD[sign]}</span><span aria-hidden="true">${mine ? '◆' : SIGN[sign]}</span></u>
      <span role="cell">${shown}${first ? html`<em class="tagy">outside edit, kept</em>` : ''}</span></div>`;
  })}</div>`;
}

const KIND = { added: 'A', deleted: 'D', modified: 'M', mode: 'm', type: 'T' };

/** One file of a change. `marks`: reviewed hunks; `act`: what the buttons do. */
export function FileDiff({ file, reviewed, act, onWhole }) {
  const ids = file.hunks.map(hunk => hunk.id).filter(Boolean);
  const done = ids.filter(id => reviewed[id]).length;
  const [open, setOpen] = useState(null);
  const folded = open === null ? ids.length > 0 && done === ids.length && file.change !== 'deleted' : !open;
  const at = done === ids.length && ids.length ? reviewed[ids[0]] : '';
  return html`<section aria-label=${file.path}><div class="f-head"><span class=${`k ${KIND[file.change].toLowerCase()}`} title=${file.change}>${KIND[file.change]}</span>
      <${Path} path=${file.path} encoded=${file.encoded} />${counts(file.additions, file.deletions)}<span class="grow"></span>
      <span class="check dim notphone">${ids.length ? `${done} of ${ids.length} reviewed` : ''}</span>
      ${act && html`<button class="btn sm quiet" title="Take back this file" onClick=${() => act.file(file)}>${icon('back')}<span>Take back file</span></button>`}</div>
    ${folded ? html`<button class="fold" onClick=${() => setOpen(true)}>${icon('right')}${ids.length} hunks, reviewed${at ? ` at ${at.slice(11, 16)}` : ''}. Show</button>` : html`
      ${file.binary && html`<div class="msg">Binary, ${size(file.old_bytes)} → ${size(file.new_bytes)}</div>`}
      ${file.too_many_lines && html`<div class="msg">This change has ${file.too_many_lines.toLocaleString()} lines. <button class="btn sm" onClick=${() => onWhole(file)}>Show it</button></div>`}
      ${file.hunks.map(hunk => html`<${Hunk} key=${hunk.id || hunk.new_start} hunk=${hunk} file=${file} reviewed=${reviewed} act=${act} />`)}`}
  </section>`;
}

function Hunk({ hunk, file, reviewed, act }) {
  const numbers = hunk.lines.map(line => line[2] ?? line[1]);
  const at = hunk.lines.length ? `lines ${numbers[0]}–${numbers[numbers.length - 1]}` : file.change === 'mode' ? 'mode or attributes' : 'whole file';
  const done = hunk.id && !!reviewed[hunk.id];
  return html`<div class=${`h-head ${done ? '' : 'hot'}`} data-hunk=${hunk.id}><span class="at cut grow">${at}</span>
      ${act && hunk.id && html`<button class="btn sm quiet h-act" onClick=${() => act.hunk(file, hunk)}>${icon('back')}<span>Take back hunk</span></button>`}
      ${act && hunk.id && html`<label class=${`check ${done ? 'on' : ''}`}><input type="checkbox" checked=${done} onChange=${() => act.review([hunk.id], !done)} /><span>Reviewed</span></label>`}</div>
    ${hunk.lines.length > 0 && html`<${Lines} lines=${hunk.lines} onLine=${act && ((number, text) => act.line(file, number, text))} />`}`;
}
