import inspector from 'node:inspector';

/** Code that is looked at: what the build put together, and the decoder of messages. */
const WATCHED = /^file:\/\/.*\/(build\/|node_modules\/msgpackr\/)/;

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

export type Ran = readonly inspector.Profiler.ScriptCoverage[];

/** Pieces of source text, `from` to before `to`. */
type Piece = readonly [from: number, to: number];

/**
 * Which blocks of code have run, by V8's precise coverage. It says which pieces of text ran since it was asked last,
 * and cuts them differently each time (neighbours with equal counts are one); so what is kept is the text that has
 * never run, function by function.
 *
 * Functions that have run before the first `start` are seen as a whole only: start before the code that matters runs.
 */
export class Coverage {
  readonly #session = new inspector.Session();
  /** Script and place of a function -> the pieces of it that have never run. */
  readonly #unseen = new Map<string, Piece[]>();

  start(): void {
    this.#session.connect();
    this.#session.post('Profiler.enable');
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  stop(): void {
    this.#session.post('Profiler.stopPreciseCoverage');
    this.#session.disconnect();
  }

  /** Everything is news again: for another target. */
  forget(): void {
    this.#unseen.clear();
    this.poll();
  }

  /** What has run since this was asked last. */
  poll(): Ran {
    let result: Ran = [];
    // Answered within the call: the session is of this thread.
    this.#session.post('Profiler.takePreciseCoverage', (error, answer) => {
      if (error !== null) throw error;
      result = answer.result.filter(({ url }) => WATCHED.test(url));
    });
    return result;
  }

  /** Whether it has reached what nothing that was kept has reached. */
  isNews(ran: Ran): boolean {
    for (const { scriptId, functions } of ran) {
      for (const { ranges } of functions) if (this.#left(nameOf(scriptId, ranges), ranges) !== undefined) return true;
    }
    return false;
  }

  keep(ran: Ran): void {
    for (const { scriptId, functions } of ran) {
      for (const { ranges } of functions) {
        const name = nameOf(scriptId, ranges);
        const left = this.#left(name, ranges);
        if (left !== undefined) this.#unseen.set(name, left);
      }
    }
  }

  /** What of a function has never run now; undefined: as before. */
  #left(name: string, ranges: readonly Range[]): Piece[] | undefined {
    const whole = ranges[0] as Range;
    if (whole.count === 0) return undefined;
    const before = this.#unseen.get(name);
    const idle = idlePieces(ranges);
    if (before === undefined) return idle;
    const left = common(before, idle);
    return size(left) < size(before) ? left : undefined;
  }
}

function nameOf(scriptId: string, ranges: readonly Range[]): string {
  const { startOffset, endOffset } = ranges[0] as Range;
  return `${scriptId}:${startOffset}:${endOffset}`;
}

/** The pieces of a function that did not run. Ranges are nested, the inner ones after those around them. */
function idlePieces(ranges: readonly Range[]): Piece[] {
  let idle: Piece[] = [];
  for (const { startOffset, endOffset, count } of ranges) {
    idle = without(idle, [startOffset, endOffset]);
    if (count === 0) idle.push([startOffset, endOffset]);
  }
  return idle.sort(([a], [b]) => a - b);
}

function without(pieces: readonly Piece[], [from, to]: Piece): Piece[] {
  return pieces.flatMap(([start, end]): Piece[] => {
    if (end <= from || start >= to) return [[start, end]];
    const rest: Piece[] = [];
    if (start < from) rest.push([start, from]);
    if (end > to) rest.push([to, end]);
    return rest;
  });
}

/** Text that is in both; both are in order. */
function common(a: readonly Piece[], b: readonly Piece[]): Piece[] {
  const both: Piece[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const [aFrom, aTo] = a[i] as Piece;
    const [bFrom, bTo] = b[j] as Piece;
    if (Math.max(aFrom, bFrom) < Math.min(aTo, bTo)) both.push([Math.max(aFrom, bFrom), Math.min(aTo, bTo)]);
    if (aTo < bTo) i++;
    else j++;
  }
  return both;
}

function size(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, [from, to]) => sum + to - from, 0);
}
