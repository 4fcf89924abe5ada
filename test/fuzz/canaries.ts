/**
 * Decoders with a mistake in them, that the fuzzers must find: else they would not find one of our own either. The
 * mistakes are planted around the real decoders, or in copies; nothing of this is in the program.
 */
import { ProtocolError } from '../../src/base/errors.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { FrameReader, type FrameSink } from '../../src/rpc/frame.js';
import { check, type Fuzzer, unlessRefused } from './fuzzer.js';
import { locationColumnFuzzer } from './targets/directory.js';
import { type Cutter, rpcFrameFuzzer } from './targets/rpc-frames.js';

/** Loses the stream's next byte when a piece ends with the last byte of a frame's header. */
class ForgetfulReader implements Cutter {
  readonly #reader: FrameReader;
  #seenBytes = 0;
  #frames = 0;

  constructor(sink: FrameSink) {
    this.#reader = new FrameReader({
      opening: (bytes) => sink.opening(bytes),
      frame: (frame) => {
        this.#frames++;
        sink.frame(frame);
      },
    });
  }

  get isWithinFrame(): boolean {
    return this.#reader.isWithinFrame;
  }

  push(chunk: Buffer): void {
    const isAtHeader = this.#frames === 0 && this.#seenBytes === 21;
    this.#seenBytes += chunk.length;
    this.#reader.push(isAtHeader ? chunk.subarray(1) : chunk);
  }
}

/** Allows the index one beyond the table of nodes: such a location has no node. */
function decodeOneTooMany(bytes: unknown, nodes: unknown): LocationColumns {
  const longer = Array.isArray(nodes) ? [...(nodes as unknown[]), ['one too many', 1, 'h:1']] : nodes;
  const columns = LocationColumns.decode(bytes, longer);
  columns.nodes.pop();
  return columns;
}

/** A length that is believed: the text is read from behind the end of what has come. */
const believedLength: Fuzzer = {
  name: 'canary-length',
  what: 'a missing bounds check behind a magic, a version and a kind',
  form: 'bytes',
  seeds: () => [Buffer.from('record')],
  run(input) {
    unlessRefused([ProtocolError], () => decodeRecord(input));
  },
};

/** [magic "FC"][version: 2][kind: 1 or 7][length: u8][text] */
function decodeRecord(input: Buffer): string {
  if (input[0] !== 0x46) throw new ProtocolError('magic');
  if (input[1] !== 0x43) throw new ProtocolError('magic');
  if (input[2] !== 2) throw new ProtocolError('version');
  const length = input[4] ?? 0;
  if (input[3] === 1 && 5 + length > input.length) throw new ProtocolError('truncated');
  if (input[3] !== 1 && input[3] !== 7) throw new ProtocolError('kind');
  check(5 + length <= input.length, 'read beyond the end');
  return input.toString('latin1', 5, 5 + length);
}

export const CANARIES: readonly Fuzzer[] = [
  {
    ...rpcFrameFuzzer('canary-frames', (sink) => new ForgetfulReader(sink)),
    what: 'a byte that is lost at one way to cut a stream',
  },
  { ...locationColumnFuzzer('canary-locations', decodeOneTooMany), what: 'an index that is compared off by one' },
  believedLength,
];
