import { type ChildProcess, fork } from 'node:child_process';
import test from 'ava';
import type {
  OverwriteMessage,
  OverwriteProgress,
  OverwriteResult,
  OverwriteSetup,
} from '../_programs/stress/overwrite-agent.js';
import { freePort, PATIENCE_MS, until } from '../_support/support.js';

const SECONDS = Number(process.env.MESHCACHE_STRESS_SECONDS ?? 6);
const READERS = 2;
/** The pool holds 64 of them: the owner goes round it many times a second. */
const PAGE_BYTES = 64 * 1024;

function message(child: ChildProcess, kind: OverwriteMessage['kind']): Promise<OverwriteMessage> {
  return new Promise((resolve, reject) => {
    child.on('message', (received: OverwriteMessage) => {
      if (received.kind === kind) resolve(received);
    });
    child.once('exit', (code) => reject(new Error(`process ended with ${code} before it said ${kind}`)));
  });
}

/** For SECONDS, and on until one reader has seen what the test is about: a busy machine takes longer to come to it. */
async function overwriteWhileReading(
  config: Record<string, unknown>,
  isSeen: (progress: OverwriteProgress) => boolean,
): Promise<OverwriteResult> {
  const discoveryPort = await freePort();
  const children: ChildProcess[] = [];
  try {
    for (const role of ['owner', ...new Array<'reader'>(READERS).fill('reader')] as const) {
      const child = fork(new URL('./stress-overwrite-agent.js', import.meta.url));
      children.push(child);
      const setup: OverwriteSetup = {
        role,
        discoveryPort,
        pageBytes: PAGE_BYTES,
        config: { global_segment_size: 64 * PAGE_BYTES, ...config },
      };
      child.send(setup);
      await message(child, 'ready');
    }
    const [owner, ...readers] = children as [ChildProcess, ...ChildProcess[]];
    owner.on('message', (received: OverwriteMessage) => {
      if (received.kind !== 'front') return;
      for (const reader of readers) if (reader.connected) reader.send({ front: received.front });
    });
    const latest = new Map<ChildProcess, OverwriteProgress>();
    for (const reader of readers) {
      reader.on('message', (received: OverwriteMessage) => {
        if (received.kind === 'progress') latest.set(reader, received);
      });
    }
    await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
    await until(() => [...latest.values()].some(isSeen)).catch(() => {});
    const results = children.map((child) => message(child, 'result') as Promise<OverwriteResult & OverwriteMessage>);
    for (const child of [...readers, owner]) child.send({ stop: true });
    return (await Promise.all(results)).reduce<OverwriteResult>(
      (sum, result) => ({
        reads: sum.reads + result.reads,
        hits: sum.hits + result.hits,
        wrongPages: sum.wrongPages + result.wrongPages,
        staleReads: sum.staleReads + result.staleReads,
        published: Math.max(sum.published, result.published),
        earlyReuses: sum.earlyReuses + result.earlyReuses,
      }),
      { reads: 0, hits: 0, wrongPages: 0, staleReads: 0, published: 0, earlyReuses: 0 },
    );
  } finally {
    for (const child of children) child.kill('SIGKILL');
  }
}

test.serial('overwrite: with verification and quarantine no read is wrong, and stale ones are caught', async (t) => {
  t.timeout(SECONDS * 1000 + 2 * PATIENCE_MS);
  const result = await overwriteWhileReading(
    { verify_reads: true, reuse_quarantine_ms: 1000 },
    ({ hits, staleReads }) => hits > 0 && staleReads > 0,
  );
  t.log(result);
  t.is(result.wrongPages, 0);
  t.true(result.hits > 0, 'the readers found pages');
  t.true(result.staleReads > 0, 'stale reads happened and were caught');
});

test.serial(
  'overwrite: without verification and quarantine, stamps catch what was freed, and TCP brings a stamp last',
  async (t) => {
    t.timeout(SECONDS * 1000 + 2 * PATIENCE_MS);
    const result = await overwriteWhileReading(
      { verify_reads: false, reuse_quarantine_ms: 0 },
      ({ hits, staleReads }) => hits > 0 && staleReads > 0,
    );
    t.log(result);
    t.is(result.wrongPages, 0);
    t.true(result.staleReads > 0, 'the load is hard enough to prove something');
  },
);

test.serial('overwrite: without verification, stamps and quarantine keep reads right', async (t) => {
  t.timeout(SECONDS * 1000 + 2 * PATIENCE_MS);
  const result = await overwriteWhileReading(
    { verify_reads: false, reuse_quarantine_ms: 1000 },
    ({ hits }) => hits > 0,
  );
  t.log(result);
  t.is(result.wrongPages, 0);
  t.true(result.hits > 0, 'the readers found pages');
});
