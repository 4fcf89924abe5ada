const [SPACE, TAB, QUOTE, APOSTROPHE, BACKSLASH, X] = [0x20, 0x09, 0x22, 0x27, 0x5c, 0x78];
const WHITE: ReadonlySet<number> = new Set([SPACE, TAB, 0x0a, 0x0b, 0x0c, 0x0d, 0x00]);
const ESCAPES: ReadonlyMap<number, number> = new Map([
  [0x6e, 0x0a],
  [0x72, 0x0d],
  [0x74, 0x09],
  [0x62, 0x08],
  [0x61, 0x07],
]);

/**
 * Splits a line into words as Redis does. Words may be in quotes; in double quotes, a backslash precedes special
 * characters or `xHH`. Returns undefined if a quote is missing or something follows a closing one.
 */
export function splitInline(line: Buffer): Buffer[] | undefined {
  const words: Buffer[] = [];
  let at = 0;
  for (;;) {
    while (at < line.length && WHITE.has(line[at] as number)) at++;
    if (at >= line.length) return words;
    const word: number[] = [];
    while (at < line.length && !WHITE.has(line[at] as number)) {
      const byte = line[at] as number;
      if (byte === QUOTE || byte === APOSTROPHE) {
        const end = quoted(line, at, word);
        if (end === undefined) return undefined;
        at = end;
        break;
      }
      word.push(byte);
      at++;
    }
    words.push(Buffer.from(word));
  }
}

/** Adds the contents of the quotes that begin at `start`. Returns the position after them, where the word must end. */
function quoted(line: Buffer, start: number, word: number[]): number | undefined {
  const quote = line[start] as number;
  for (let at = start + 1; at < line.length; at++) {
    const byte = line[at] as number;
    if (byte === quote) return at + 1 >= line.length || WHITE.has(line[at + 1] as number) ? at + 1 : undefined;
    if (byte !== BACKSLASH || at + 1 >= line.length) {
      word.push(byte);
      continue;
    }
    const next = line[at + 1] as number;
    if (quote === APOSTROPHE) {
      if (next === APOSTROPHE) at++;
      word.push(next === APOSTROPHE ? next : byte);
      continue;
    }
    const hex = line.toString('latin1', at + 2, at + 4);
    if (next === X && /^[0-9a-fA-F]{2}$/.test(hex)) {
      word.push(Number.parseInt(hex, 16));
      at += 3;
    } else {
      word.push(ESCAPES.get(next) ?? next);
      at++;
    }
  }
  return undefined;
}

/**
 * Whether a line belongs to the head of an HTTP request: a web page must not be able to make a browser send commands in
 * a request body. Besides the request line, this checks the words by which Redis detects HTTP.
 */
export function isHttpRequest(words: readonly Buffer[]): boolean {
  const [first, last] = [words[0], words.at(-1)].map((word) => word?.toString('latin1').toLowerCase() ?? '');
  return last?.startsWith('http/') === true || first === 'post' || first?.startsWith('host:') === true;
}
