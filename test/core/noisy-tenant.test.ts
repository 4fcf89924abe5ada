import { existsSync, readFileSync } from 'node:fs';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { type EvictionPolicy, PoolAllocator } from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

/** Where the real trace lies, if it is here; it is not part of the project. */
const TRACE = process.env.MESHCACHE_TRACE ?? '../shared/data/conversation_trace.jsonl';
const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const PAGE_BYTES = 64;
const QUIET = 1;
const NOISY = 2;

const withTrace = existsSync(TRACE) ? test : test.skip;
const suffix = existsSync(TRACE) ? '' : ` (skipped: no ${TRACE}, see MESHCACHE_TRACE)`;

function readTrace(): string[][] {
  const lines = readFileSync(TRACE, 'utf8').trim().split('\n');
  return lines.map((line) => (JSON.parse(line) as { hash_ids: number[] }).hash_ids.map((id) => `block ${id}`));
}

/** Conversations that grow turn by turn; some end, and new ones begin. */
function conversations(requests: number, seed: number): string[][] {
  const random = seededRandom(seed);
  const part = () => random.u32() / 2 ** 32;
  const turns = new Map<number, number>();
  let next = 0;
  return Array.from({ length: requests }, () => {
    const open = [...turns.keys()];
    const isNew = open.length < 60 || part() < 0.3;
    const id = isNew ? next++ : (open[Math.floor(part() ** 2 * open.length)] as number);
    const length = (turns.get(id) ?? 2) + 1 + Math.floor(part() * 4);
    turns.set(id, length);
    if (open.length > 150) turns.delete(open[0] as number);
    return Array.from({ length }, (_, i) => (i < 2 ? `system ${i}` : `conversation ${id} page ${i}`));
  });
}

interface Load {
  readonly trace: readonly string[][];
  readonly policy: EvictionPolicy;
  /** Pages that the quota of the quiet tenant is; that of the noisy one is as many bytes. */
  readonly pages: number;
  readonly quarantineMs: number;
  /** What limits the noisy tenant: its quota, nothing but the minimum of the quiet one, or nothing. */
  readonly limit: 'quota' | 'minimum' | 'none';
  /** Bytes of a page of the noisy tenant; 0: it is silent. */
  readonly noiseBytes: number;
}

/**
 * Share of the pages of the quiet tenant's requests that are found; the noisy one writes ten times its quota meanwhile.
 */
function hitRate({ trace, policy, pages, quarantineMs, limit, noiseBytes }: Load): number {
  const quotaBytes = pages * PAGE_BYTES;
  const capacityBytes = 2 * quotaBytes + 4 * PAGE_BYTES;
  const tenants = [
    { minBytes: quotaBytes, maxBytes: quotaBytes },
    { minBytes: 0, maxBytes: limit === 'quota' ? quotaBytes : capacityBytes },
  ];
  const pool = new PoolAllocator({
    capacityBytes,
    policy,
    quarantineMs,
    tenants,
    core: freshCore(),
  });
  const noisy = limit === 'none' ? QUIET : NOISY;
  let [requested, found, noise] = [0, 0, 0];
  for (const [nowMs, keys] of trace.entries()) {
    const gap = pool.hasBatch(keys).indexOf(0);
    const prefix = gap < 0 ? keys.length : gap;
    requested += keys.length;
    found += prefix;
    pool.lookupBatch(keys.slice(0, prefix), { tenant: QUIET });
    if (prefix < keys.length) pool.publishBatch(keys.slice(prefix), PAGE_BYTES, nowMs, { tenant: QUIET });
    const due = noiseBytes === 0 ? 0 : Math.floor((10 * quotaBytes * (nowMs + 1)) / trace.length / noiseBytes);
    for (; noise < due; noise++) pool.publishBatch([`noise ${noise}`], noiseBytes, nowMs, { tenant: noisy });
  }
  pool.verify();
  return found / requested;
}

interface Case {
  readonly trace: readonly string[][];
  readonly pages: number;
}

for (const policy of POLICIES) {
  const compare = (
    t: { true(holds: boolean, text: string): void; log(text: string): void },
    { trace, pages }: Case,
  ) => {
    for (const [quarantineMs, limit] of [
      [0, 'quota'],
      [0, 'minimum'],
      [50, 'minimum'],
    ] as const) {
      const load = { trace, policy, pages, quarantineMs, limit };
      const alone = hitRate({ ...load, noiseBytes: 0 });
      const unlimited = hitRate({ ...load, limit: 'none', noiseBytes: PAGE_BYTES });
      t.true(unlimited < 0.99 * alone, `${unlimited} in one quota with the noise, ${alone} alone: noise costs hits`);
      // Pages of another size leave holes in which none of the quiet tenant's fits.
      for (const noiseBytes of [PAGE_BYTES, 20, 3 * PAGE_BYTES]) {
        const beside = hitRate({ ...load, noiseBytes });
        t.log(
          `quarantine ${quarantineMs} ms, noise of ${noiseBytes} bytes: ${beside.toFixed(4)}, alone ${alone.toFixed(4)}`,
        );
        t.true(alone > 0.05, 'there is something to lose');
        t.true(Math.abs(beside - alone) <= 0.01 * alone, `${beside} beside the other tenant, ${alone} alone`);
      }
    }
  };

  test(`pool: a tenant that writes ten times its quota costs another no hits, ${policy}`, (t) => {
    compare(t, { trace: conversations(1_500, 5), pages: 400 });
  });

  withTrace(`pool: a tenant that writes ten times its quota costs the real trace no hits, ${policy}${suffix}`, (t) => {
    t.timeout(300_000);
    compare(t, { trace: readTrace().slice(0, 6_000), pages: 5_000 });
  });
}
