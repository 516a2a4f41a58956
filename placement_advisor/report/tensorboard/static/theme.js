// TensorBoard marks its own page as dark; ours is a frame in it, of the same origin.
const MARK = 'dark-mode';
const DEVICE_COLORS = 7;
const known = new Map();

/** Follows TensorBoard from light to dark and back; calls `changed` after each turn. */
export function followTheme(changed) {
  const outer = window.parent.document.body;
  const apply = () => {
    document.documentElement.classList.toggle('dark', outer.classList.contains(MARK));
    known.clear();
    changed();
  };
  new MutationObserver(apply).observe(outer, { attributeFilter: ['class'] });
  apply();
}

/** Returns the value of a colour of style.css, for canvases. */
export function color(name) {
  if (!known.has(name)) {
    const style = getComputedStyle(document.documentElement);
    known.set(name, style.getPropertyValue(`--${name}`).trim());
  }
  return known.get(name);
}

/** Returns the name of the colour of the device with this number. */
export const deviceColorName = (number) => `device-${number % DEVICE_COLORS}`;

/** Returns the colour of the device with this number; null is for no device. */
export const deviceColor = (number) =>
  color(number === null ? 'no-device' : deviceColorName(number));
