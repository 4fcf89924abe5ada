import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { SoftirqThreads } from '../../src/bench/measuring/softirq-threads.js';

function processFolder(proc: string, pid: string, name: string, nanoseconds: number): void {
  mkdirSync(join(proc, pid));
  writeFileSync(join(proc, pid, 'comm'), `${name}\n`);
  writeFileSync(join(proc, pid, 'schedstat'), `${nanoseconds} 77 5\n`);
}

test('softirq threads: the time of all of them is summed, and of nothing else', (t) => {
  const proc = mkdtempSync(join(tmpdir(), 'meshcache-proc-'));
  t.teardown(() => rmSync(proc, { recursive: true }));
  processFolder(proc, '14', 'ksoftirqd/0', 1_500_000_000);
  processFolder(proc, '21', 'ksoftirqd/1', 250_000_000);
  processFolder(proc, '159', 'node', 9_000_000_000);
  processFolder(proc, 'self', 'ksoftirqd/2', 9_000_000_000);
  const threads = new SoftirqThreads(proc);
  t.is(threads.count, 2);
  t.is(threads.cpuS(), 1.75);
  writeFileSync(join(proc, '14', 'schedstat'), '2500000000 77 5\n');
  t.is(threads.cpuS(), 2.75);
});

test('softirq threads: a container that shows none has none', (t) => {
  const proc = mkdtempSync(join(tmpdir(), 'meshcache-proc-'));
  t.teardown(() => rmSync(proc, { recursive: true }));
  processFolder(proc, '1', 'node', 9_000_000_000);
  const threads = new SoftirqThreads(proc);
  t.is(threads.count, 0);
  t.is(threads.cpuS(), 0);
});
