import { el, list, table } from './dom.js';

/** Returns from where on a split would win, with all values that were tried to unfold. */
export function breakEven({ title, lines, note, sweeps }) {
  return el(
    'div',
    {},
    el('p', {}, `${title}.`),
    list(lines),
    el('p', { class: 'hint' }, note),
    ...sweeps.map(({ axis, points }) =>
      el(
        'details',
        {},
        el('summary', {}, `All that was tried: ${axis}`),
        el('div', { class: 'wide' }, sweep(axis, points)),
      ),
    ),
  );
}

const sweep = (axis, points) =>
  table(
    `The best split by ${axis}, simulated`,
    [axis, 'Split', 'Speed-up', ''],
    points.map(({ value, candidate, speedup, wins, here }) => [
      value,
      candidate,
      speedup,
      [here ? 'here' : '', wins ? 'wins' : ''].filter(Boolean).join(', '),
    ]),
  );
