import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { Semaphore } from '../../src/base/concurrency/mutex.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { DISK_ALIGNMENT_BYTES } from '../../src/base/limits.js';
import { DiskState } from '../../src/disk/disk-state.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { AlignedBuffers } from '../../src/disk/folder/alignment.js';
import type { DiskFolder } from '../../src/disk/folder/disk-folder.js';
import { PageFile } from '../../src/disk/folder/page-file.js';
import { Journal } from '../../src/disk/journal/journal.js';
import { KeyReaders, PageWriter } from '../../src/disk/page-writer.js';
import { type QueuedPage, WriteQueue } from '../../src/disk/write-queue.js';
import { NO_ORIGIN, PageIndex } from '../../src/pool/page-index.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { ManualClock } from '../_support/clock.js';
import { entryOf, Twin, testFolder } from '../_support/disk/journals.js';
import { assertAsks, assertFound, lose, losing } from '../_support/planted.js';
import { content } from '../_support/support.js';

const PAGE = DISK_ALIGNMENT_BYTES;
const env = systemEnvironment({ log: silentLogger, clock: new ManualClock() });

function queued(key: string): QueuedPage {
  const page = { views: [content(1, PAGE)], length: PAGE };
  return { key, page, checksum: 1, origin: NO_ORIGIN, release() {}, isCancelled: false };
}

function newWriter() {
  const index = new PageIndex({ capacityBytes: 64 * PAGE, alignmentBytes: PAGE, nowMs: () => 0 });
  const folder = {
    file: { capacityBytes: 64 * PAGE, write: () => new Promise(() => {}) },
    journal: { hasRoomFor: () => true, put() {}, remove() {}, flush: async () => {} },
  } as unknown as DiskFolder;
  const options = { nodeId: '', env, queueMaxBytes: 64 * PAGE };
  const writer = new PageWriter(folder, index, new DiskState(folder, options), options);
  return { index, writer };
}

async function newStore(t: ExecutionContext): Promise<DiskStore> {
  const store = await DiskStore.open(testFolder(t), 16 * 2 ** 20, {
    nodeId: 'n',
    env: systemEnvironment({ log: silentLogger }),
  });
  t.teardown(() => store.close());
  for (const key of ['a', 'b']) store.put(key, content(1, PAGE));
  await store.flush();
  return store;
}

test.serial('verify: write queue', async (t) => {
  const shorter = new WriteQueue(8 * PAGE);
  const entry = queued('a');
  shorter.add(entry);
  await assertFound(t, shorter, /write queue: bytes: 4096 by what is kept, 8192/, () =>
    Object.assign(entry.page, { length: 2 * PAGE }),
  );
  const unfound = new WriteQueue(8 * PAGE);
  await assertFound(t, unfound, /"a" is on its way and not found by its key/, () =>
    losing(Map.prototype, 'set', () => unfound.add(queued('a'))),
  );
  const forgotten = new WriteQueue(8 * PAGE);
  await assertFound(t, forgotten, /write queue: bytes: 4096 by what is kept, 0/, () => {
    forgotten.add(queued('a'));
    losing(Set.prototype, 'add', () => forgotten.take(PAGE));
  });
  const full = new WriteQueue(2 * PAGE);
  await assertFound(t, full, /bytes of several pages: 12288, allowed are 8192/, () => {
    for (const key of ['a', 'b', 'c']) full.add(queued(key));
  });
});

test.serial('verify: page writer', async (t) => {
  const { index, writer } = newWriter();
  writer.add(queued('a'));
  await new Promise((resolve) => setImmediate(resolve));
  await assertFound(t, writer, /"b" has a place and is not being written/, () => {
    const { vacancies } = index.place([{ key: 'b', length: PAGE, here: null, intent: 'new' }]);
    index.holdUnfilled(vacancies);
  });
  const idle = newWriter().writer;
  await assertFound(t, idle, /1 pages wait, and 0 writes are under way/, () => idle.queue.add(queued('c')));
  assertAsks(t, newWriter().writer, [WriteQueue]);
});

test.serial('verify: semaphore and buffers, key readers', async (t) => {
  const semaphore = new Semaphore(1);
  let end: () => void = () => {};
  const first = semaphore.use(() => new Promise<void>((resolve) => (end = resolve)));
  void semaphore.use(() => new Promise(() => {}));
  await assertFound(t, semaphore, /1 users wait, and 1 numbers are free/, async () => {
    // Whoever waits is not seen when the number is given back.
    const found = lose(Array.prototype, 'shift', { when: (self) => typeof (self as unknown[])[0] === 'function' });
    end();
    await first.finally(found);
  });
  assertAsks(t, new AlignedBuffers({ bufferBytes: 65_536, count: 1 }), [Semaphore]);
  const readers = new KeyReaders();
  await assertFound(t, readers, /no read of "k", which is kept/, async () => {
    const found = lose(Map.prototype, 'delete', { when: (_, [key]) => key === 'k' });
    await readers.during('k', Promise.resolve()).finally(found);
  });
});

test.serial('verify: journal', async (t) => {
  const twin = await Twin.create(join(testFolder(t), 'index'));
  t.teardown(() => twin.journal.close());
  for (let page = 0; page < 9; page++) twin.replace(entryOf(page));
  twin.remove('page-3');
  await assertFound(t, twin.journal, /journal: pages: 8 by what is kept, 7/, () => twin.model.remove('page-4'));
  twin.journal.remove('page-4');
  await assertFound(t, twin.journal, /bytes of their records/, () => {
    twin.model.remove('page-5');
    twin.model.put({ ...entryOf(5), key: 'a longer name' });
  });
});

test.serial('verify: disk store, page file', async (t) => {
  const store = await newStore(t);
  await assertFound(t, store, /journal: pages: 2 by what is kept, 1/, () =>
    losing(Journal.prototype, 'remove', () => store.remove('a')),
  );
  assertAsks(t, await newStore(t), [PageIndex, PageWriter, KeyReaders, PageFile, Journal, Semaphore, AlignedBuffers]);
});
