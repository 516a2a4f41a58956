// Text from nanoseconds and bytes, as in the other reports. Unknown is "?".
export const NOTHING_OF_IT = 'Nothing of it was simulated or measured.';

const TIMES = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']];
const SIZES = [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']];
const FLOPS = [[1e12, 'Tflop'], [1e9, 'Gflop'], [1e6, 'Mflop'], [1e3, 'kflop']];

export const formatNs = (time) => scaled(time, TIMES, 'ns');
export const formatBytes = (size) => scaled(size, SIZES, 'B');
export const formatFlops = (flops) => scaled(flops, FLOPS, 'flop');

/** Returns the last part of a path. */
export const shortName = (name) => name.slice(name.lastIndexOf('/') + 1);

function scaled(amount, steps, smallest) {
  if (amount === null) return '?';
  for (const [size, unit] of steps) {
    const value = Number((amount / size).toPrecision(3));
    if (Math.abs(value) >= 1) {
      const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
      return `${value.toFixed(digits)} ${unit}`;
    }
  }
  return `${amount.toFixed(0)} ${smallest}`;
}
