// Candidates: compared in bars, and all their figures in a table.
import { el, list } from './dom.js';
import { formatBytes } from './format.js';

const NOTHING = '–';
const BASES = ['simulated', 'measured'];
// The parts of a step with the names of their colours.
const PARTS = [
  ['compute', 'compute'],
  ['waits for copies', 'copy'],
  ['idle', 'idle'],
  ['no profile to rely on', 'no-profile'],
];

/** Returns bars of what each step is made of; `choose` is called with the name of a candidate. */
export function comparison({ candidates, as_is: asIs }, chosen, choose) {
  const [shown, unfit] = [true, false].map((fits) => candidates.filter((each) => each.is_applicable === fits));
  const parts = shown.flatMap(({ bars }) => Object.values(bars));
  const most = Math.max(1, ...parts.map(total));
  const used = PARTS.filter(([name]) => parts.some((bar) => bar[name]));
  const rows = shown.map(({ name, bars, figures, failure }) => {
    const radio = el('input', {
      type: 'radio',
      name: 'candidate',
      value: name,
      checked: name === chosen,
      onchange: () => choose(name),
    });
    const drawn = BASES.filter((basis) => bars[basis]).map((basis) =>
      el('div', { class: `bar ${basis}` }, ...PARTS.map(([part, css]) => wide('span', css, (bars[basis][part] ?? 0) / most))),
    );
    return el(
      'tr',
      {},
      el('th', { scope: 'row' }, el('label', {}, radio, name)),
      el('td', {}, ...drawn),
      el('td', {}, ...best(figures[0])),
      failure
        ? el('td', { class: 'failure', title: failure }, failure.split(':')[0])
        : el('td', {}, ...best(figures.at(-1))),
    );
  });
  const own = asIs ? el('tr', {}, el('th', { scope: 'row' }, asIs[0]), el('td'), el('td', {}, asIs[1]), el('td')) : null;
  const said = shown.some(({ bars }) => bars.measured) ? 'Above simulated, below measured' : 'Simulated';
  const head = ['Candidate', said, 'Step', 'Speed-up'];
  return el(
    'div',
    {},
    el('div', { class: 'key' }, ...used.map(([name, css]) => el('span', {}, el('i', { class: `swatch ${css}` }), name))),
    el(
      'table',
      { class: 'comparison' },
      el('thead', {}, el('tr', {}, ...head.map((name) => el('th', { scope: 'col' }, name)))),
      el('tbody', {}, ...rows, ...(own ? [own] : [])),
    ),
    unfit.length
      ? el(
          'details',
          { class: 'hint' },
          el('summary', {}, `${unfit.length} ${unfit.length === 1 ? 'does' : 'do'} not apply`),
          list(unfit.map(({ name, failure }) => `${name}: ${failure}`)),
        )
      : null,
  );
}

const total = (bar) => Object.values(bar).reduce((sum, part) => sum + part, 0);

/** Returns an element that takes a share of what it is in. */
function wide(tag, css, share) {
  const element = el(tag, { class: css });
  element.style.width = `${100 * share}%`;
  return element;
}

/** Returns what was measured, else what was simulated; the interval on a line of its own. */
function best(figure) {
  if (!figure) return [NOTHING];
  const [simulated, measured] = figure;
  const [value, ...ends] = (measured === NOTHING ? simulated : measured).split(/ (?=\()/);
  const below = measured === NOTHING && simulated !== NOTHING ? [...ends, 'simulated'] : ends;
  return [value, ...below.map((text) => el('div', {}, el('small', {}, text)))];
}

/** Returns the figures of all candidates, as predicted and as measured, and what is to be noted. */
export function figureTable({ columns, candidates, as_is: asIs, notes = [] }) {
  const shown = candidates.filter((each) => each.is_applicable);
  const most = Math.max(1, ...shown.flatMap(({ peak_memory: peaks }) => peaks.map(([, size]) => size)));
  const upper = columns.map((name) => el('th', { scope: 'colgroup', colspan: 2 }, name));
  const lower = columns.flatMap(() => ['predicted', 'measured'].map((name) => el('th', { scope: 'col' }, name)));
  const outer = (name) => el('th', { scope: 'col', rowspan: 2 }, name);
  const table = el(
    'table',
    { class: 'candidates' },
    el('caption', {}, 'Per step; measured steps are timed, copies profiled'),
    el('thead', {}, el('tr', {}, outer('Candidate'), ...upper, outer('Peak memory, predicted')), el('tr', {}, ...lower)),
    el('tbody', {}, ...shown.map((each) => row(each, columns, most))),
    asIs ? el('tfoot', {}, ownRow(asIs, columns)) : null,
  );
  return el('div', { class: 'wide' }, table, ...notes.map((text) => el('p', { class: 'hint' }, text)));
}

/** Returns the row of the user's own step, which is no candidate. */
function ownRow([name, time], columns) {
  const cells = columns.flatMap((title, i) => pair(title, [NOTHING, i ? NOTHING : time]));
  return el('tr', {}, el('th', { scope: 'row' }, name), ...cells, el('td', {}, NOTHING));
}

function row({ name, failure, figures, after_runs: later, peak_memory: peaks }, columns, most) {
  const head = el('th', { scope: 'row' }, name);
  if (failure) head.append(el('div', { class: 'failure' }, failure));
  if (!figures.length) return el('tr', {}, head, el('td', { colspan: 2 * columns.length + 1 }, NOTHING));
  const cells = figures.flatMap((figure, i) => pair(columns[i], figure));
  if (later) cells.at(-2).append(el('div', { class: 'predicted' }, later));
  const memory = peaks.map(([device, size]) =>
    el('div', { class: 'memory' }, `${device} ${formatBytes(size)}`, wide('div', 'share', size / most)),
  );
  return el('tr', {}, head, ...cells, el('td', { 'data-title': 'Peak memory' }, ...memory));
}

const pair = (title, [expected, measured]) => [
  el('td', { class: 'predicted', 'data-title': `${title}, predicted` }, expected),
  el('td', { 'data-title': `${title}, measured` }, measured),
];
