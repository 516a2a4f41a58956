import { button, el } from './dom.js';

/** Returns how to carry out a split, in words and as code to copy. */
export function howToSplit({ candidate, words, note, call, listing }) {
  return el(
    'div',
    {},
    el('p', {}, el('b', {}, candidate), `: ${words}.`),
    note ? el('p', { class: 'hint' }, note) : null,
    el('p', {}, 'Your own step, placed so, on its own variables (inputs: those that were analysed):'),
    code(call),
    listing === null
      ? null
      : el('details', {}, el('summary', {}, 'The same by hand'), code(listing)),
  );
}

/** Returns code with a button that copies it, or chooses it where the browser lets no page copy. */
function code(text) {
  const shown = el('pre', {}, text);
  const said = el('span', { class: 'hint', role: 'status' });
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    if (!isCopied) getSelection().selectAllChildren(shown);
    said.textContent = isCopied ? 'Copied.' : 'Chosen: Ctrl+C copies it.';
  };
  return el('div', { class: 'code' }, el('div', { class: 'tools' }, button('Copy', copy), said), shown);
}
