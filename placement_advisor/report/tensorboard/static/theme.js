const DEVICE_COLORS = 7;
const known = new Map();

/** Turns the page light or dark; what is on canvases wants to be drawn anew. */
export function setDark(isDark) {
  document.documentElement.classList.toggle('dark', isDark);
  known.clear();
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
