import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { crc32 as zlibCrc32 } from 'node:zlib';
import fc from 'fast-check';
import { addon, suffix, withAddon } from '../_support/native/addon.js';
import { content } from '../_support/support.js';

const run = promisify(execFile);
const PROGRAM = new URL('./native-addon-program.js', import.meta.url);

/** Offset in the source, length, and whether the piece is copied or only summed. */
const piece = fc.record({
  at: fc.integer({ min: 0, max: 4000 }),
  length: fc.integer({ min: 0, max: 3000 }),
  copied: fc.boolean(),
});
type Piece = { at: number; length: number; copied: boolean };

const source = new Uint8Array(new SharedArrayBuffer(8192));
source.set(content(2, source.length));

interface Call {
  readonly pieces: Float64Array;
  readonly counts: Uint32Array;
  readonly target: Uint8Array;
  readonly expected: Uint8Array;
  readonly sums: number[];
}

/** Targets lie one after the other; what is only summed leaves its place as it is. */
function callOf(pages: readonly (readonly Piece[])[]): Call {
  const bytes = pages.flat().reduce((sum, { length }) => sum + length, 1);
  const target = new Uint8Array(new SharedArrayBuffer(bytes));
  const expected = new Uint8Array(bytes);
  const from = addon.addressOf(source);
  let to = 0;
  const columns: number[] = [];
  const sums = pages.map((page) => {
    let sum = 0;
    for (const { at, length, copied } of page) {
      const view = source.subarray(at, at + length);
      columns.push(copied ? addon.addressOf(target) + to : 0, from + at, length);
      if (copied) expected.set(view, to);
      to += length;
      sum = zlibCrc32(view, sum);
    }
    return sum;
  });
  return {
    pieces: Float64Array.from(columns),
    counts: Uint32Array.from(pages.map((page) => page.length)),
    target,
    expected,
    sums,
  };
}

withAddon(`copy: pages of pieces, here and on other threads${suffix}`, async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(piece, { maxLength: 5 }), { maxLength: 12 }), async (pages) => {
      for (const isSync of [true, false]) {
        const { pieces, counts, target, expected, sums } = callOf(pages);
        const done = isSync ? addon.copyPagesSync(pieces, counts) : await addon.copyPages(pieces, counts);
        if (sums.join() !== done.join() || Buffer.compare(target, expected) !== 0) return false;
      }
      return true;
    }),
    { numRuns: 200 },
  );
  t.pass();
});

withAddon(`copy: many calls at once, each gets its own sums${suffix}`, async (t) => {
  const calls = Array.from({ length: 100 }, (_, i) =>
    callOf([[{ at: i, length: 3000 - i, copied: true }], [{ at: 7, length: i, copied: true }]]),
  );
  const done = await Promise.all(calls.map(({ pieces, counts }) => addon.copyPages(pieces, counts)));
  calls.forEach(({ sums, target, expected }, i) => {
    t.deepEqual([...(done[i] as Uint32Array)], sums);
    t.deepEqual(target, expected);
  });
});

withAddon(`copy: what is not pieces and counts throws and copies nothing${suffix}`, (t) => {
  for (const copy of [addon.copyPagesSync, addon.copyPages] as ((pieces: unknown, counts: unknown) => unknown)[]) {
    const { pieces, counts, target } = callOf([[{ at: 0, length: 100, copied: true }]]);
    const changed = (index: number, value: number) => pieces.with(index, value);
    for (const wrong of [undefined, [1, 2, 3], new Uint8Array(24), changed(2, -1), changed(1, 0), changed(0, 0.5)]) {
      t.throws(() => copy(wrong, counts), { instanceOf: TypeError, message: /piece/ });
    }
    t.throws(() => copy(changed(1, Number.NaN), counts), { instanceOf: TypeError });
    t.throws(() => copy(changed(2, 2 ** 60), counts), { instanceOf: TypeError });
    t.throws(() => copy(pieces.subarray(0, 2), counts), { instanceOf: TypeError });
    for (const wrong of [undefined, [1], Uint32Array.of(2), Uint32Array.of(0), new Uint32Array(0)]) {
      t.throws(() => copy(pieces, wrong), { instanceOf: TypeError, message: /counts/ });
    }
    t.true(target.every((byte) => byte === 0));
  }
});

withAddon(`copy: the process stays until a copy is done, and ends then${suffix}`, async (t) => {
  const { stdout } = await run(process.execPath, [PROGRAM.pathname, 'copy']);
  t.is(stdout, 'copied\n');
});

withAddon(`copy: a worker may be terminated, and a process end, in the middle of copies${suffix}`, async (t) => {
  for (let i = 0; i < 3; i++) {
    const worker = new Worker(PROGRAM, { argv: ['copy-forever'] });
    await new Promise((resolve) => worker.once('message', resolve));
    await worker.terminate();
  }
  const { stdout } = await run(process.execPath, [PROGRAM.pathname, 'exit-while-copying']);
  t.is(stdout, 'exit\n');
});
