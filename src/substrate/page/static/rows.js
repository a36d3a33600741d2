// The timeline: rows of one height by index, of which only those in view are in the document.
import { get } from './api.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './dom.js';
import { icon } from './icons.js';
import { clock, oneLine, plural, safe } from './text.js';

const PAGE = 100, OVER = 8;

/** Rows by index; pages are asked for when they are first seen. */
export class Rows {
  constructor(query, changed) {
    Object.assign(this, { query, changed, total: null, pages: new Map(), asked: new Map() });
  }
  at(index) {
    const page = Math.floor(index / PAGE);
    this.want(page);
    return this.pages.get(page)?.[index % PAGE];
  }
  want(page, again = false) {
    if (!this.asked.has(page) || again) this.asked.set(page, this.load(page));
    return this.asked.get(page);
  }
  async load(page) {
    try {
      const found = await get('/v1/rows', { ...this.query, from: page * PAGE, n: PAGE });
      this.total = found.total;
      this.pages.set(page, found.rows);
    } catch (error) {
      if (error.kind === 'not-found') this.total = 0;
      this.error = error;
    }
    this.changed();
  }
  /** Something was recorded: ask again for what is shown; keep the old rows until then. */
  async refresh(pages) {
    for (const page of [...this.asked.keys()]) if (!pages.includes(page)) { this.asked.delete(page); this.pages.delete(page); }
    await Promise.all(pages.map(page => this.want(page, true)));
  }
  /** The index of an id among the rows that are loaded. */
  find(id) {
    for (const [page, rows] of this.pages) {
      const at = rows.findIndex(row => row.id === id);
      if (at >= 0) return page * PAGE + at;
    }
    return -1;
  }
}
export const pageOf = index => Math.floor(Math.max(index, 0) / PAGE);

const counts = (added, removed) => html`<span class="st"><span class="pm"><span class="plus">${added ? `+${added}` : ''}</span><span class="minus">${removed ? `−${removed}` : ''}</span></span></span>`;

const node = row => row.undone ? 'hollow' : row.held ? 'hold' : row.deleted_files >= 5 ? 'big' : row.exit ? 'fail' : row.changed ? '' : 'none';

const OUTSIDE = { external: 'Edited outside', undo: 'Took back', redo: 'Brought back', rollback: 'Rolled back', restore: 'Restored' };

function flags(row) {
  const out = [];
  if (row.undone) out.push(html`<span class="tag">${icon('back')}taken back</span>`);
  if (row.denied) out.push(html`<span class="tag bad">${icon('stop')}denied</span>`);
  if (row.held) out.push(html`<span class="tag warn">${icon('hold')}held</span>`);
  if (row.conflict) out.push(html`<span class="tag warn">conflict</span>`);
  if (row.exit) out.push(html`<span class="tag bad">exit ${row.exit}</span>`);
  if (row.deleted_files) out.push(html`<span class="tag del">${icon('trash')}${row.deleted_files} deleted</span>`);
  if (row.network) out.push(html`<span class="tag">${icon('net')}${row.network}</span>`);
  return out.slice(0, 2);
}

export const titleOf = row => row.row !== 'entry' ? oneLine(row.title) || '(its text was not reported)'
  : row.outside ? `${OUTSIDE[row.kind]}${row.kind === 'external' ? `: ${plural(row.files, 'file')}` : ` ${row.of ? oneLine(row.of) : oneLine(row.command).replace(/^\w+ of /, '')}`}`
  : row.kind === 'baseline' ? 'The files as first found' : oneLine(row.command);

function nameOf(row) {
  if (row.row !== 'entry') return `${row.row}, ${titleOf(row)}, ${plural(row.count, 'command')}, ${clock(row.ts)}`;
  const parts = [row.outside ? 'outside edit' : row.kind, titleOf(row), plural(row.files, 'file')];
  if (row.additions !== null) parts.push(`${row.additions} added`, `${row.deletions} removed`);
  if (row.exit !== null) parts.push(`exit ${row.exit}`);
  return [...parts, clock(row.ts)].join(', ');
}

export function Timeline({ rows, selected, files, inScope, onSelect, onOpen, end, onEnd }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800, row: 28 });
  const extra = files && files.index >= 0 ? files.list.length : 0;
  const total = (rows.total || 0) + extra;
  const place = () => {
    const el = box.current;
    if (!el) return;
    const row = parseFloat(getComputedStyle(el).getPropertyValue('--row')) || 28;
    setView({ top: el.scrollTop, height: el.clientHeight, row });
    onEnd(el.scrollTop + el.clientHeight >= el.scrollHeight - row);
  };
  useLayoutEffect(place, [total]);
  useEffect(() => {
    const watch = new ResizeObserver(place);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => { if (end && box.current) box.current.scrollTop = box.current.scrollHeight; }, [rows.total, end, extra]);
  useLayoutEffect(() => {
    if (selected < 0 || !box.current) return;
    const y = place_of(selected, files, extra) * view.row, el = box.current;
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y + view.row > el.scrollTop + el.clientHeight) el.scrollTop = y + view.row - el.clientHeight;
  }, [selected]);
  const first = Math.max(Math.floor(view.top / view.row) - OVER, 0);
  const last = Math.min(Math.ceil((view.top + view.height) / view.row) + OVER, total);
  const shown = [];
  for (let at = first; at < last; at++) {
    const within = extra && at > files.index ? at - files.index - 1 : -1;
    const style = { top: `${at * view.row}px` };
    if (within >= 0 && within < extra) shown.push(html`<${File} key=${`f${within}`} file=${files.list[within]} style=${style} at=${at} />`);
    else {
      const index = within >= 0 ? at - extra : at;
      const row = rows.at(index);
      shown.push(html`<${Row} key=${row ? row.id : `i${index}`} row=${row} index=${index} at=${at} style=${style} selected=${index === selected} inScope=${row && inScope(row, index)} onSelect=${onSelect} onOpen=${onOpen} />`);
    }
  }
  return html`<div class="scroll" ref=${box} role="treegrid" aria-label="What happened, oldest first" aria-rowcount=${total} onScroll=${place}>
    <div class="canvas" role="rowgroup" style=${{ height: `${total * view.row}px` }}>${shown}</div></div>
    ${!end && rows.total > 0 && html`<button class="btn sm newest" onClick=${() => { box.current.scrollTop = box.current.scrollHeight; }}>Newest ${icon('down')}</button>`}`;
}
const place_of = (index, files, extra) => extra && index > files.index ? index + extra : index;

function Row({ row, index, at, style, selected, inScope, onSelect, onOpen }) {
  if (!row) return html`<div class="row loading" style=${style} role="row" aria-rowindex=${at + 1}><span class="lane"></span><span class="what" role="gridcell"><span></span></span></div>`;
  const group = row.row !== 'entry', you = !group && row.outside;
  const kind = group ? 'prompt' : you ? 'you' : 'cmd';
  const mark = group ? 'p' : you ? 'y' : node(row);
  const classes = ['row', kind, selected && 'sel', inScope && 'inscope', !group && !row.changed && 'quietrow', row.undone && 'undone'].filter(Boolean).join(' ');
  return html`<div class=${classes} style=${style} role="row" aria-rowindex=${at + 1} aria-level=${group ? 1 : 2} aria-selected=${selected ? 'true' : 'false'}
      tabindex=${selected ? 0 : -1} data-id=${row.id} aria-label=${nameOf(row)} onClick=${e => onSelect(index, row, e.shiftKey)} onDblClick=${() => onOpen(row)}>
    <span class="lane" aria-hidden="true"><i class=${mark}></i></span>
    <span class="what" role="gridcell"><span class="cut">${safe(titleOf(row))}</span></span>
    <span class="flags" role="gridcell">${group ? html`<span class="dim">${row.count}<span class="wide">${row.count === 1 ? ' command' : ' commands'}</span></span>` : flags(row)}</span>
    ${group ? html`<span class="st"></span>` : counts(row.additions, row.deletions)}
    <span class="t">${clock(row.ts)}</span></div>`;
}

function File({ file, style, at }) {
  return html`<div class="row file inscope" style=${style} role="row" aria-rowindex=${at + 1} aria-level="3" aria-label=${`${file.change} ${file.path}`}>
    <span class="lane" aria-hidden="true"></span><span class="k">${file.change[0].toUpperCase()}</span>
    <span class="what" role="gridcell"><span class="cut">${safe(file.path)}</span></span><span class="flags"></span>${counts(file.additions, file.deletions)}<span></span></div>`;
}
