import { createHash } from 'node:crypto';
import { type RandomSource, seededRandom } from '../../base/environment/random.js';

/** One turn of a conversation as a serving process sees it: all pages of the prompt, in order. */
export interface TurnRequest {
  readonly conversation: number;
  /** Position in the conversation, from 0; a turn can only follow the one before it. */
  readonly turn: number;
  /** Chained content hashes, 64 hexadecimal characters each: equal keys have equal prefixes. */
  readonly keys: readonly string[];
}

/** Number of system prompts. This and the following constants shape the conversations; a block is a page. */
const SYSTEM_PROMPTS = 6;
const SYSTEM_PROMPT_BLOCKS = [6, 24] as const;
const EXAMPLES_PER_PROMPT = 3;
const EXAMPLE_BLOCKS = [3, 10] as const;
const TURNS = [2, 9] as const;
const QUESTION_BLOCKS = [1, 4] as const;
const ANSWER_BLOCKS = [1, 3] as const;
/** Mean time between conversations. Times only determine how turns of different conversations interleave. */
const ARRIVAL_MS = 900;
const THINK_MS = 6_000;

interface TimedRequest extends TurnRequest {
  readonly atMs: number;
}

/**
 * A small model of the conversations of a service: each starts with one of a few system prompts (some far more popular
 * than others), half of them continue with one of its example sections, and all grow by a question and an answer every
 * turn. The same seed and count give the same requests in the same order everywhere.
 */
export function conversationWorkload(options: {
  readonly seed: number;
  readonly conversations: number;
}): TurnRequest[] {
  const random = seededRandom(options.seed);
  const root = createHash('sha256').update(`meshcache workload ${options.seed}`).digest('hex');
  const requests: TimedRequest[] = [];
  let startMs = 0;
  for (let conversation = 0; conversation < options.conversations; conversation++) {
    startMs += exponential(random, ARRIVAL_MS);
    requests.push(...conversationTurns(random, { root, conversation, startMs }));
  }
  requests.sort((a, b) => a.atMs - b.atMs || a.conversation - b.conversation || a.turn - b.turn);
  return requests.map(({ conversation, turn, keys }) => ({ conversation, turn, keys }));
}

/** The number of distinct pages in a workload. */
export function uniquePages(requests: readonly { readonly keys: readonly string[] }[]): number {
  const keys = new Set<string>();
  for (const request of requests) for (const key of request.keys) keys.add(key);
  return keys.size;
}

function conversationTurns(
  random: RandomSource,
  { root, conversation, startMs }: { root: string; conversation: number; startMs: number },
): TimedRequest[] {
  const history = openingKeys(random, root);
  const turns = between(random, TURNS);
  const requests: TimedRequest[] = [];
  let atMs = startMs;
  for (let turn = 0; turn < turns; turn++) {
    extendChain(history, `conversation ${conversation} question ${turn}`, between(random, QUESTION_BLOCKS));
    requests.push({ conversation, turn, atMs, keys: [...history] });
    extendChain(history, `conversation ${conversation} answer ${turn}`, between(random, ANSWER_BLOCKS));
    atMs += exponential(random, THINK_MS);
  }
  return requests;
}

/** Keys of a system prompt and, for half of the conversations, of one of its example sections. */
function openingKeys(random: RandomSource, root: string): string[] {
  const prompt = popular(random, SYSTEM_PROMPTS);
  const keys = [root];
  extendChain(keys, `prompt ${prompt}`, fixedBetween(`${root} prompt ${prompt}`, SYSTEM_PROMPT_BLOCKS));
  if (random.u32() % 2 === 0) {
    const example = popular(random, EXAMPLES_PER_PROMPT);
    const name = `prompt ${prompt} example ${example}`;
    extendChain(keys, name, fixedBetween(`${root} ${name}`, EXAMPLE_BLOCKS));
  }
  keys.shift();
  return keys;
}

/** Appends `count` blocks. The key of a block is the hash of the previous key and of the block's own content. */
function extendChain(keys: string[], content: string, count: number): void {
  for (let block = 0; block < count; block++) {
    const parent = keys[keys.length - 1] ?? '';
    keys.push(createHash('sha256').update(`${parent} ${content} block ${block}`).digest('hex'));
  }
}

function between(random: RandomSource, [min, max]: readonly [number, number]): number {
  return min + (random.u32() % (max - min + 1));
}

/** A length derived from a name alone. */
function fixedBetween(name: string, [min, max]: readonly [number, number]): number {
  const hash = createHash('sha256').update(name).digest().readUInt32LE(0);
  return min + (hash % (max - min + 1));
}

/** A number below `count`; each is about twice as likely as the next. */
function popular(random: RandomSource, count: number): number {
  return Math.min(Math.clz32(random.u32() | 1), count - 1);
}

function exponential(random: RandomSource, mean: number): number {
  return -mean * Math.log(1 - random.u32() / 2 ** 32);
}
