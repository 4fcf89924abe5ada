import { ProtocolError } from '../../base/errors.js';
import { MAP_ANSWER_MAX_PAGES, MAP_ROUND_MS } from '../../base/limits.js';
import { MARK_WORDS } from '../../core/map/page-map.js';
import { isNodeId, isWholeNumber } from '../../directory/messages/location-columns.js';
import { type Fields, readBytes } from '../../directory/messages/wire.js';

/** Bytes of a mark on the wire: u64 little endian. */
const MARK_BYTES = 4 * MARK_WORDS;
/** One batch or slice may go beyond the limit at which an answer ends. */
const ANSWER_LIMIT_BYTES = 2 * MAP_ANSWER_MAX_PAGES * MARK_BYTES;
const POSITION_TEXT_MAX_CHARACTERS = 64;

/** What a follower asks of a member: for the next part of a list of all its pages, or for what has happened since. */
export type MapQuestion = {
  /** Id of the asking node. */
  readonly follower: string;
  /** Longest time until the answer. */
  readonly waitMs: number;
} & ({ readonly list: number; readonly after?: undefined } | { readonly after: string; readonly list?: undefined });

/** Which pages a member has and which it does not have. */
export interface MapAnswer {
  /** What has happened since the position is not known any more: a list must be asked for. */
  readonly isLost?: boolean;
  /** From where the next question goes on; undefined: the list goes on, or must be asked for. */
  readonly position?: string;
  /** In the order of the events; see `pageMarks`. */
  readonly marks: Uint32Array;
}

export function mapQuestionFields({ follower, waitMs, list, after }: MapQuestion): Fields {
  return { follower, wait_ms: waitMs, ...(list === undefined ? { after } : { list }) };
}

/** Reads a question. Throws `ProtocolError`. */
export function readMapQuestion({ follower, wait_ms: waitMs, list, after: given }: Fields): MapQuestion {
  if (!isNodeId(follower)) throw new ProtocolError('follower: not a node id');
  if (!isWholeNumber(waitMs) || waitMs > MAP_ROUND_MS) {
    throw new ProtocolError(`wait_ms: not a whole number up to ${MAP_ROUND_MS}`);
  }
  const after = readPosition(given, 'after');
  if (after !== undefined) return { follower, waitMs, after };
  if (!isWholeNumber(list)) throw new ProtocolError('list: not a whole number up to 2^53');
  return { follower, waitMs, list };
}

export function mapAnswerFields({ isLost, position, marks }: MapAnswer): Fields {
  return {
    ...(isLost === true ? { lost: true } : {}),
    ...(position === undefined ? {} : { position }),
    marks: new Uint8Array(marks.buffer, marks.byteOffset, marks.byteLength),
  };
}

/** Reads an answer; its words are copies. Throws `ProtocolError`. */
export function readMapAnswer(fields: Fields): MapAnswer {
  const bytes = readBytes(fields, 'marks');
  if (bytes.length % MARK_BYTES !== 0 || bytes.length > ANSWER_LIMIT_BYTES) {
    throw new ProtocolError(`marks: ${bytes.length} bytes are no list of marks`);
  }
  const position = readPosition(fields.position, 'position');
  return {
    isLost: fields.lost === true,
    ...(position === undefined ? {} : { position }),
    marks: new Uint32Array(Uint8Array.from(bytes).buffer),
  };
}

function readPosition(value: unknown, name: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.length <= POSITION_TEXT_MAX_CHARACTERS) return value;
  throw new ProtocolError(`${name}: not text of at most ${POSITION_TEXT_MAX_CHARACTERS} characters`);
}
