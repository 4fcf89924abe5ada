import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { readTrace, type TraceRequest, traceKey } from '../../src/cli/load/trace.js';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-trace-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
function traceFile(text: string): string {
  const path = join(folder, `${files++}.jsonl`);
  writeFileSync(path, text);
  return path;
}

async function readAll(path: string): Promise<TraceRequest[]> {
  const requests: TraceRequest[] = [];
  for await (const request of readTrace(path)) requests.push(request);
  return requests;
}

const GOOD = '{"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}';

test('trace: requests come in the order of their lines; empty lines and other fields do not matter', async (t) => {
  const second = '{"timestamp":30,"input_length":1,"output_length":0,"hash_ids":[],"model":"m"}';
  t.deepEqual(await readAll(traceFile(`${GOOD}\r\n\n${second}`)), [
    { timestampMs: 27, inputTokens: 6758, outputTokens: 500, hashIds: [0, 1, 2] },
    { timestampMs: 30, inputTokens: 1, outputTokens: 0, hashIds: [] },
  ]);
});

const BAD: readonly (readonly [what: string, line: string, message: RegExp])[] = [
  ['text that is not JSON', '{"timestamp": ', /line 2: not JSON/],
  ['a line that is no object', '[1]', /line 2: must be an object/],
  ['missing ids', '{"timestamp": 1, "input_length": 1, "output_length": 1}', /line 2: hash_ids .* got nothing/],
  ['a negative id', GOOD.replace('[0,', '[-1,'), /line 2: hash_ids must be a list of whole numbers/],
  ['an id with a fraction', GOOD.replace('[0,', '[0.5,'), /line 2: hash_ids must be a list of whole numbers/],
  ['an id that is text', GOOD.replace('[0,', '["0",'), /line 2: hash_ids must be a list of whole numbers/],
  ['a timestamp that is text', GOOD.replace('27', '"27"'), /line 2: timestamp must be a number from 0 on, got "27"/],
  ['a negative length', GOOD.replace('6758', '-1'), /line 2: input_length must be a number from 0 on, got -1/],
];

for (const [what, line, message] of BAD) {
  test(`trace: ${what} is refused with the line's number`, async (t) => {
    await t.throwsAsync(readAll(traceFile(`${GOOD}\n${line}\n${GOOD}\n`)), { message });
  });
}

test('trace: a file that is not there is refused with its name', async (t) => {
  await t.throwsAsync(readAll(join(folder, 'nowhere.jsonl')), { message: /cannot read the trace .*nowhere\.jsonl/ });
  await t.throwsAsync(readAll(folder), { message: /cannot read the trace/ });
});

test('trace: keys are 64 hexadecimal characters, a different one for each id', (t) => {
  const keys = Array.from({ length: 1000 }, (_, id) => traceKey(id));
  t.true(keys.every((key) => /^[0-9a-f]{64}$/.test(key)));
  t.is(new Set(keys).size, 1000);
  t.is(keys[3], traceKey(3));
});

test('trace: a file without line ends is not read to its end', async (t) => {
  await t.throwsAsync(readAll('/dev/zero'), { message: /cannot read the trace \/dev\/zero: a line is longer than/ });
});
