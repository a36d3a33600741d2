// Text of commands, files and programs is hostile: it only ever becomes text nodes, and characters
// that act on their surroundings (control, bidi, invisible) are shown as their code in a box.
import { html } from './dom.js';

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const code = c => {
  const n = c.charCodeAt(0);
  return n < 256 ? '\\x' + n.toString(16).padStart(2, '0') : '\\u' + n.toString(16).padStart(4, '0');
};

/** The text in pieces: strings, and boxes for odd characters. */
export function safe(text) {
  const out = [];
  let done = 0;
  for (const m of String(text).matchAll(ODD)) {
    out.push(text.slice(done, m.index), html`<span class="odd">${code(m[0])}</span>`);
    done = m.index + m[0].length;
  }
  out.push(text.slice(done));
  return out;
}

export const oneLine = text => {
  const [first, ...more] = String(text).trim().split('\n');
  return more.length ? `${first} …` : first;
};

export const firstWord = text => {
  const words = oneLine(text).split(' ');
  return words.length > 1 ? `${words[0].slice(0, 24)} …` : words[0].slice(0, 32);
};

export const clock = ts => {
  const at = new Date(ts);
  return isNaN(at) ? '' : at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
};

export const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

export const size = n => n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;

/** Output of a program: colours (SGR) become classes, every other escape is dropped. */
const COLOURS = { 31: 'r', 91: 'r', 32: 'g', 92: 'g', 33: 'yl', 93: 'yl', 36: 'c', 96: 'c', 34: 'c', 94: 'c', 35: 'm', 95: 'm' };
const ESCAPE = /\u001b(?:\[([0-9;:]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;

export function coloured(line) {
  const out = [];
  let done = 0, colour = '', bold = false, dim = false;
  const add = text => {
    if (!text) return;
    const name = [colour, bold && 'bd', dim && 'dm'].filter(Boolean).join(' ');
    out.push(name ? html`<span class=${name}>${safe(text)}</span>` : safe(text));
  };
  for (const m of line.matchAll(ESCAPE)) {
    add(line.slice(done, m.index));
    done = m.index + m[0].length;
    if (m[2] !== 'm') continue;
    for (const one of (m[1] || '0').split(/[;:]/).map(Number)) {
      if (one === 0) { colour = ''; bold = dim = false; }
      else if (one === 1) bold = true;
      else if (one === 2) dim = true;
      else if (one === 22) bold = dim = false;
      else if (one === 39) colour = '';
      else if (COLOURS[one]) colour = COLOURS[one];
    }
  }
  add(line.slice(done).replace(/\r$/, ''));
  return out;
}
