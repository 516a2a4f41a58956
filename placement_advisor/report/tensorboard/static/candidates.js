import { el } from './dom.js';

const NOTHING = '–';

/** Returns candidates and the step that feeds them; `choose` is called with the name of one. */
export function candidateTable({ columns, candidates, as_is: asIs, notes = [] }, chosen, choose) {
  const head = ['Candidate', ...columns, 'Peak memory'];
  const table = el(
    'table',
    { class: 'candidates' },
    el('caption', {}, 'Candidates: predicted | measured, per step; measured steps are timed, copies profiled'),
    el('thead', {}, el('tr', {}, ...head.map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...candidates.map((each) => row(each, head.length, each.name === chosen, choose))),
    asIs ? el('tfoot', {}, ownRow(asIs, head.length)) : null,
  );
  return el('div', {}, table, ...notes.map((text) => el('p', { class: 'hint' }, text)));
}

/** Returns the row of the user's own step, which is no candidate. */
function ownRow([name, time], width) {
  const rest = Array.from({ length: width - 2 }, () => el('td', {}, NOTHING));
  return el('tr', {}, el('th', { scope: 'row' }, name), pair([NOTHING, time]), ...rest);
}

function row(candidate, width, isChosen, choose) {
  const { name, failure, figures, after_runs: later, peak_memory: peaks } = candidate;
  const radio = el('input', {
    type: 'radio',
    name: 'candidate',
    value: name,
    checked: isChosen,
    onchange: () => choose(name),
  });
  const head = el('th', { scope: 'row' }, el('label', {}, radio, name));
  const tone = candidate.is_applicable ? 'failure' : 'hint';
  if (!figures.length) {
    return el('tr', {}, head, el('td', { colspan: width - 1, class: tone }, failure));
  }
  if (failure) head.append(el('div', { class: tone }, failure));
  const cells = figures.map(pair);
  if (later) cells.at(-1).append(predicted('div', later));
  return el('tr', {}, head, ...cells, el('td', {}, ...peaks.map((peak) => predicted('div', peak))));
}

const pair = ([expected, measured]) =>
  el('td', {}, predicted('span', expected), ' | ', el('b', {}, measured));

const predicted = (tag, text) => el(tag, { class: 'predicted' }, text);
