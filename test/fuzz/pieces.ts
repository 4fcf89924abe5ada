/** Pieces longer than this are random ones. */
const EVEN_MAX_BYTES = 127;

/**
 * A stream and how it is cut: the first byte of an input says how long the pieces are: 0 one piece, up to 127 that many
 * bytes each, above that of lengths that follow from it.
 */
export function piecesOf(input: Buffer): { readonly stream: Buffer; readonly pieces: readonly Buffer[] } {
  const mode = input[0] ?? 0;
  const stream = input.subarray(1);
  const pieces: Buffer[] = [];
  let state = mode;
  for (let at = 0; at < stream.length; ) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const length = mode === 0 ? stream.length : mode <= EVEN_MAX_BYTES ? mode : 1 + ((state >>> 16) % 64);
    // A copy, as every read from a socket is memory of its own.
    pieces.push(Buffer.from(stream.subarray(at, at + length)));
    at += length;
  }
  return { stream, pieces };
}

/** An input for {@link piecesOf}. */
export function inPieces(mode: number, ...parts: readonly Uint8Array[]): Buffer {
  return Buffer.concat([Buffer.from([mode]), ...parts]);
}
