import { el } from './dom.js';
import { NOTHING, formatBytes, formatNs, formatTimes } from './format.js';

const HEAD = ['Candidate', 'Step', 'Copies', 'Exposed', 'Speed-up', 'Peak memory'];

/** Returns candidates and the step that feeds them; `choose` is called with the name of one. */
export function candidateTable(overview, chosen, choose) {
  const { candidates, as_is: asIs, input, expected_errors: errors } = overview;
  const own = asIs ? `${asIs.name}: your own step, unmodified, with all of the machine.` : null;
  const notes = [own, input, errors].filter(Boolean);
  return el('div', {}, tableOf(candidates, asIs, chosen, choose), ...notes.map(note));
}

const note = (text) => el('p', { class: 'hint' }, text);

function tableOf(candidates, asIs, chosen, choose) {
  return el(
    'table',
    { class: 'candidates' },
    el('caption', {}, 'Candidates: predicted | measured, per step; measured steps are timed, copies profiled'),
    el('thead', {}, el('tr', {}, ...HEAD.map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...candidates.map((each) => row(each, each.name === chosen, choose))),
    asIs ? el('tfoot', {}, ownRow(asIs)) : null,
  );
}

/** Returns the row of the user's own step, which is no candidate. */
function ownRow({ name, step_ns: time }) {
  const rest = HEAD.slice(2).map(() => el('td', {}, NOTHING));
  return el('tr', {}, el('th', { scope: 'row' }, name), pair(NOTHING, formatNs(time)), ...rest);
}

function row(candidate, isChosen, choose) {
  const { name, predicted, measured, failure } = candidate;
  const radio = el('input', {
    type: 'radio',
    name: 'candidate',
    value: name,
    checked: isChosen,
    onchange: () => choose(name),
  });
  const tone = candidate.failure_kind === 'not-applicable' ? 'hint' : 'failure';
  const cells = failure && !predicted && !measured
    ? [el('td', { colspan: HEAD.length - 1, class: tone }, failure)]
    : [
        pair(step(predicted), step(measured)),
        pair(copies(predicted), copies(measured)),
        pair(exposed(predicted), exposed(measured)),
        pair(foreseen(candidate), speedup(candidate.measured_speedup), later(candidate)),
        el('td', {}, ...memory(candidate.peak_memory)),
      ];
  const label = el('label', {}, radio, name);
  const head = el('th', { scope: 'row' }, label);
  if (failure && cells.length > 1) head.append(el('div', { class: tone }, failure));
  return el('tr', {}, head, ...cells);
}

const pair = (predicted, measured, further = null) =>
  el('td', {}, el('span', { class: 'predicted' }, predicted), ' | ', el('b', {}, measured), further);

const step = (figures) => (figures ? formatNs(figures.step_ns) : NOTHING);

const exposed = (figures) =>
  figures && figures.exposed_ns !== null ? formatNs(figures.exposed_ns) : NOTHING;

function copies(figures) {
  if (!figures || figures.copies === null) return NOTHING;
  if (!figures.copies) return 'none';
  return `${figures.copies}, ${formatBytes(figures.bytes, figures.bytes_are_a_floor)}`;
}

/** Returns a line for each device: what it holds at most, as predicted. */
const memory = (peaks) =>
  (peaks ?? []).map(({ device, bytes }) => el('div', { class: 'predicted' }, `${device} ${formatBytes(bytes)}`));

const withEnds = (median, low, high) => `${formatTimes(median)} (${low.toFixed(2)}–${high.toFixed(2)})`;

/** Returns the simulated speed-up, with the range that it has if costs are wrong. */
function foreseen({ predicted_speedup: times, predicted_range: range }) {
  return times && range ? withEnds(times, ...range) : formatTimes(times);
}

/** Returns what was predicted when others had run and this one had not, if it was. */
function later({ predicted_after_runs: after }) {
  if (!after) return null;
  return el('div', { class: 'predicted' }, `after ${after.runs} runs: ${speedup(after)}`);
}

const speedup = (ratio) => (ratio ? withEnds(ratio.median, ratio.low, ratio.high) : NOTHING);
