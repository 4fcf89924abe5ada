import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Fuzzer } from './fuzzer.js';

/** From the root of the project, where tests and programs run. */
const FOLDER = 'test/fuzz/corpus';

/** Inputs that earlier runs have found worth keeping, one a line: hexadecimal, or the value. */
export function readCorpus({ name, form }: Fuzzer): Buffer[] {
  const path = pathOf(name);
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, 'utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => Buffer.from(line, form === 'bytes' ? 'hex' : 'utf8'));
}

export function writeCorpus({ name, form }: Fuzzer, inputs: readonly Uint8Array[]): void {
  const lines = inputs.map((input) => Buffer.from(input).toString(form === 'bytes' ? 'hex' : 'utf8'));
  mkdirSync(join(FOLDER, name), { recursive: true });
  // A value that was changed as text may have several lines, and then it is no value.
  const kept = lines.filter((line) => line !== '' && !line.includes('\n'));
  writeFileSync(pathOf(name), `${[...new Set(kept)].join('\n')}\n`);
}

function pathOf(name: string): string {
  return join(FOLDER, name, 'inputs.txt');
}
