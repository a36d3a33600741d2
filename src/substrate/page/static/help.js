// The keys, in a dialog.
import { html, useEffect, useRef } from './dom.js';

const KEYS = [['j k', 'next, previous row'], ['[ ]', 'previous, next prompt'], ['n p', 'next, previous hunk'], ['Enter', 'open'], ['1 – 5', 'scope'], ['m', 'mark an end of A..B'],
  ['u', 'take back: preview'], ['U', 'redo: preview'], ['r', 'reviewed'], ['h', 'held'], ['f', 'filter'], ['c', 'copy the command'], ['/', 'search'], ['?', 'keys'], ['Esc', 'close, cancel']];

export function Help({ onClose }) {
  const box = useRef(null);
  useEffect(() => { box.current.showModal(); }, []);
  return html`<dialog class="dialog" ref=${box} aria-label="Keys" onClose=${onClose}><header><h2>Keys</h2></header>
    <div class="body"><div class="keys">${KEYS.map(([key, word]) => html`<div><span>${word}</span><kbd>${key}</kbd></div>`)}</div>
    <p>No key takes anything back: u shows a preview, and its button must be pressed.</p><button class="btn" onClick=${() => box.current.close()}>Close</button></div></dialog>`;
}
