import { fork } from 'node:child_process';
import test, { type ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import type { DyingNodeSetup } from '../_programs/node/dying-node.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, freeze, until } from '../_support/support.js';

const PAGES = 12;
const PATTERN = 0xee;
const KEYS = Array.from({ length: PAGES }, (_, i) => `held ${i}`);

/** A store of this process, and a process that holds pages. Nothing but reads finds out that it is silent. */
async function readerAndHolder(t: ExecutionContext, pageBytes: number) {
  const discoveryPort = await freePort();
  const config = { member_ttl: 60, global_segment_size: '128mb', location_reuse_ms: 0 };
  const reader = await createStore(discoveryPort, config);
  const holder = fork(new URL('./node-dying-node.js', import.meta.url));
  t.teardown(async () => {
    holder.kill('SIGKILL');
    await reader.close();
  });
  holder.send({ discoveryPort, config, keys: KEYS, pageBytes } satisfies DyingNodeSetup);
  await until(async () => (await reader.batchExists(KEYS)) === PAGES);
  const region = HostRegion.allocate(PAGES * pageBytes);
  t.teardown(() => region.free());
  const ptrs = KEYS.map((_, i) => region.addr + BigInt(i * pageBytes));
  const pageAt = (i: number) => region.bytes(i * pageBytes, pageBytes);
  const read = () =>
    reader.batchGet(
      KEYS,
      ptrs,
      KEYS.map(() => pageBytes),
    );
  const isContent = (i: number) => Buffer.compare(pageAt(i), content(i, pageBytes)) === 0;
  return { reader, holder, read, pageAt, isContent };
}

for (const [name, pageBytes, when] of [
  ['small pages, before the read', 4096, 'before'],
  ['large pages, in the middle of the read', 8 * 2 ** 20, 'amid'],
] as const) {
  test.serial(
    `stopped holder: nothing is written late, and its pages are there again when it is (${name})`,
    async (t) => {
      const { reader, holder, read, pageAt, isContent } = await readerAndHolder(t, pageBytes);
      await until(async () => (await read()).every(Boolean));
      for (let i = 0; i < PAGES; i++) pageAt(i).fill(0);
      if (when === 'before') await freeze(holder);
      const reading = read();
      if (when === 'amid') {
        await until(() => KEYS.some((_, i) => pageAt(i)[0] !== 0));
        holder.kill('SIGSTOP');
      }
      const results = await reading;
      if (when === 'before') t.false(results.some(Boolean));
      for (const [i, isRead] of results.entries()) {
        if (isRead) t.true(isContent(i), `page ${i}`);
        pageAt(i).fill(PATTERN);
      }
      if (results.includes(false)) t.is(await reader.batchExists(KEYS), 0);
      const other = await readerAgain();
      t.true(
        other.every((byte) => byte === PATTERN),
        'late bytes',
      );

      /** The pages' memory, when the holder is back and everything that it had to send has come. */
      async function readerAgain(): Promise<Uint8Array> {
        holder.kill('SIGCONT');
        const target = new Uint8Array(pageBytes);
        await until(
          async () => (await reader.batchExists(KEYS)) === PAGES && (await reader.get('held 3', target)) === true,
        );
        t.is(Buffer.compare(target, content(3, pageBytes)), 0);
        return Buffer.concat(KEYS.map((_, i) => pageAt(i)));
      }
    },
  );
}

test.serial('stopped holder: once it is killed and a read has failed, none of its pages exists', async (t) => {
  const { reader, holder, read } = await readerAndHolder(t, 4096);
  await until(async () => (await read()).every(Boolean));
  holder.kill('SIGKILL');
  // A read may still find what the kernel had taken of the answer.
  await until(async () => !(await read()).some(Boolean));
  for (const key of KEYS) t.false(await reader.exists(key), key);
  t.is(await reader.batchExists(KEYS), 0);
});
