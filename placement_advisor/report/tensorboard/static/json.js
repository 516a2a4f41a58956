// What is not printed but reorders or hides what stands beside it. Lines stay lines.
const UNPRINTED = /(?![\n\t])[\p{Cc}\p{Cf}]/gu;

/** Returns what a text of JSON holds; signs in its texts that nothing shows are shown as "�". */
export function parse(text) {
  return JSON.parse(text, (_, value) =>
    typeof value === 'string' ? value.replace(UNPRINTED, '�') : value,
  );
}
