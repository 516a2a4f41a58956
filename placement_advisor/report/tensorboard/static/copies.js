import { el, table } from './dom.js';
import { NOTHING, formatBytes, formatNs } from './format.js';

const FEW = 15;
const MANY = 500;

/** Returns who copies how much to whom, and the tensors that cross. */
export function copyTables({ copies, tensors, left_out: leftOut }, devices) {
  return el(
    'div',
    { class: 'copies wide' },
    matrix(copies, devices),
    leftOut ? el('p', {}, leftOut) : largest(tensors),
  );
}

function matrix({ simulated, measured }, devices) {
  const pairs = [...(simulated ?? []), ...(measured ?? [])];
  if (!pairs.length) return el('p', {}, 'No copies between devices.');
  const used = new Set(pairs.flatMap(({ source, target }) => [source, target]));
  const places = [...devices.filter((name) => used.has(name)), ...used].filter(
    (name, place, all) => all.indexOf(name) === place,
  );
  const cell = (which, source, target) => {
    const found = which?.find((each) => each.source === source && each.target === target);
    if (!found) return NOTHING;
    const bytes = formatBytes(found.bytes, found.bytes_are_a_floor);
    return `${found.count}, ${bytes}, ${formatNs(found.time_ns)}`;
  };
  return table(
    'Copies from row to column: number, bytes and time, predicted | measured',
    ['', ...places],
    places.map((source) => [
      source,
      ...places.map((target) =>
        source === target
          ? ''
          : `${cell(simulated, source, target)} | ${cell(measured, source, target)}`,
      ),
    ]),
  );
}

function largest(tensors) {
  if (!tensors.length) return '';
  const rows = (some) =>
    some.map((each) => [
      el('code', {}, each.tensor),
      `${each.source} → ${each.target}`,
      formatBytes(each.bytes),
      formatNs(each.time_ns),
    ]);
  const caption = (shown) => `Tensors that cross as predicted: ${shown} of ${tensors.length}`;
  const head = ['Tensor', 'Way', 'Bytes', 'Time'];
  const shown = (count) => {
    const some = tensors.slice(0, count);
    return table(caption(some.length), head, rows(some));
  };
  const holder = el('div', {}, shown(FEW));
  if (tensors.length > FEW) {
    const more = () => holder.replaceChildren(shown(MANY));
    holder.append(el('button', { type: 'button', onclick: more }, 'Show more'));
  }
  return holder;
}
