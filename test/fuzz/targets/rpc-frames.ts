import { RPC_FRAME_MAX_BYTES } from '../../../src/base/limits.js';
import {
  decodeHello,
  encodeHello,
  type Frame,
  FrameError,
  FrameReader,
  type FrameSink,
  FrameType,
} from '../../../src/rpc/frame.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { inPieces, piecesOf } from '../pieces.js';
import { rpcFrame } from '../rpc-bytes.js';

/** Of what comes between the hello and the frames where both want authentication. */
const OPENING_BYTES = 32;

/** What is fuzzed: {@link FrameReader}, or one with a mistake that must be found. */
export interface Cutter {
  push(chunk: Buffer): void;
  readonly isWithinFrame: boolean;
}

export function rpcFrameFuzzer(name: string, makeReader: (sink: FrameSink) => Cutter): Fuzzer {
  return {
    name,
    what: 'frames of the control plane, however the stream is cut',
    form: 'bytes',
    tokens: [encodeHello(), Buffer.from('MCRP'), rpcFrame(FrameType.cancel, 1, null), Buffer.from([0, 0, 0, 1])],
    seeds: () => {
      const frames = [
        encodeHello(),
        rpcFrame(FrameType.call, 1, ['echo', { text: 'y'.repeat(300) }]),
        rpcFrame(FrameType.answer, 2, { a: 1 }),
        rpcFrame(FrameType.error, 3, { code: 'ERR_REMOTE', message: 'no' }),
        rpcFrame(FrameType.cancel, 0xffffffff, null),
      ];
      const [hello, ...rest] = frames as [Buffer, ...Buffer[]];
      const greeting = [encodeHello({ authentication: true }), Buffer.alloc(OPENING_BYTES, 7)];
      return [0, 1, 5, 9, 200].flatMap((mode) => [
        inPieces(mode, hello, ...rest),
        inPieces(mode, ...greeting, ...rest),
      ]);
    },
    allocationMaxBytes: (inputBytes) => 2 * inputBytes + 4096,
    run(input) {
      const { stream, pieces } = piecesOf(input);
      const expected = cutNaively(stream);
      const seen = readAll(pieces, makeReader);
      check(seen.units.join() === expected.units.join(), () => `units ${seen.units} instead of ${expected.units}`);
      check(seen.fault === expected.fault, `fault ${seen.fault} instead of ${expected.fault}`);
      if (seen.fault === 'none') check(seen.isWithin === expected.isWithin, 'within a frame, or not');
    },
  };
}

export const rpcFrames = rpcFrameFuzzer('rpc-frames', (sink) => new FrameReader(sink));

interface Cut {
  readonly units: readonly string[];
  readonly fault: string;
  readonly isWithin: boolean;
}

function readAll(pieces: readonly Buffer[], makeReader: (sink: FrameSink) => Cutter): Cut {
  const units: string[] = [];
  const reader = makeReader({
    opening(bytes) {
      if (units.length > 0) return units.push(`opening ${bytes.toString('hex')}`) * 0;
      const { frameMaxBytes, authentication } = decodeHello(bytes);
      units.push(`hello ${frameMaxBytes}`);
      return authentication ? OPENING_BYTES : 0;
    },
    frame: ({ type, requestId, message }: Frame) => {
      units.push(`${type} ${requestId} ${Buffer.from(message).toString('hex')}`);
    },
  });
  let fault = 'none';
  for (const piece of pieces) {
    const pushed = unlessRefused([FrameError], () => {
      try {
        reader.push(piece);
      } catch (error) {
        if (error instanceof FrameError) fault = error.fault;
        throw error;
      }
    });
    if (pushed === undefined) break;
  }
  return { units, fault, isWithin: reader.isWithinFrame };
}

/** PROTOCOL.md once more, on the whole stream. */
export function cutNaively(stream: Buffer): Cut {
  const units: string[] = [];
  if (stream.length < 12) return { units, fault: 'none', isWithin: stream.length > 0 };
  if (stream.toString('latin1', 0, 4) !== 'MCRP') return { units, fault: 'bad_hello', isWithin: false };
  const flags = stream.readUInt16LE(6);
  if (stream[4] !== 1 || flags > 1) return { units, fault: 'bad_version', isWithin: false };
  units.push(`hello ${stream.readUInt32LE(8)}`);
  let at = 12;
  if (flags === 1) {
    if (stream.length - at < OPENING_BYTES) return { units, fault: 'none', isWithin: stream.length > at };
    units.push(`opening ${stream.toString('hex', at, at + OPENING_BYTES)}`);
    at += OPENING_BYTES;
  }
  while (stream.length - at >= 9) {
    const length = stream.readUInt32LE(at);
    if (length > RPC_FRAME_MAX_BYTES) return { units, fault: 'oversized', isWithin: false };
    if (stream.length - at < 9 + length) break;
    const type = stream[at + 8] as number;
    if (type < 1 || type > 4) return { units, fault: 'bad_frame', isWithin: false };
    units.push(`${type} ${stream.readUInt32LE(at + 4)} ${stream.toString('hex', at + 9, at + 9 + length)}`);
    at += 9 + length;
  }
  return { units, fault: 'none', isWithin: at < stream.length };
}
