import { el, table } from './dom.js';

/** Returns what took the time of the profiled steps; copies are bold. */
export function activityTable({ parts, head, rows }) {
  const shown = rows.map(({ cells, is_copy: isCopy }) =>
    isCopy ? cells.map((cell) => el('b', {}, cell)) : cells,
  );
  const caption = 'What ran in the profiled steps, copies in bold';
  return el(
    'div',
    {},
    el('p', {}, parts),
    rows.length ? el('div', { class: 'activities wide' }, table(caption, head, shown)) : null,
  );
}
