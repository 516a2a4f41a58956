import { el, table } from './dom.js';
import { NOTHING, formatNs, formatTimes } from './format.js';

/** Returns what more devices do for throughput; the first row is the single device. */
export function scalingTable({ note, rows }) {
  const figures = (row, which) => {
    const [step, alone] = [row[which], rows[0][which]];
    if (!step) return NOTHING;
    const rate = row.batch / step;
    // What a larger batch brings on one device nobody has shown.
    const compares = row !== rows[0] && row.batch === rows[0].batch && alone;
    let times = compares ? `, ${formatTimes((rate * alone) / rows[0].batch)}` : '';
    if (which === 'measured_ns' && row.speedup) times = `, ${formatTimes(row.speedup)} within rounds`;
    return `${formatNs(step)}, ${Math.round(rate * 1e9).toLocaleString('en')} samples/s${times}`;
  };
  return el(
    'div',
    {},
    el(
      'div',
      { class: 'wide' },
      table(
        'Step, throughput, and at the same batch how many times that of one device',
        ['', 'Candidate', 'Devices', 'Samples a step', 'Predicted (simulated)', 'Measured'],
        rows.map((row) => [
          row.name,
          row.candidate,
          String(row.devices),
          String(row.batch),
          figures(row, 'predicted_ns'),
          figures(row, 'measured_ns'),
        ]),
      ),
    ),
    el('p', { class: 'hint' }, note),
  );
}
