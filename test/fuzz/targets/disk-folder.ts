import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLogger } from '../../../src/base/environment/log.js';
import { DiskError } from '../../../src/base/errors.js';
import { DISK_MIN_BYTES } from '../../../src/base/limits.js';
import { DiskStore } from '../../../src/disk/disk-store.js';
import { encodeHeader, RecordWriter } from '../../../src/disk/journal/journal-format.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { entryOf, STORE_ID } from '../../_support/disk/journals.js';
import { check, type Fuzzer, unlessRejected } from '../fuzzer.js';
import { Scratch } from '../scratch-file.js';

const scratch = new Scratch();
const env = systemEnvironment({ log: silentLogger });
const PAGES = Buffer.alloc(64 * 1024);

/** [what there is: u8, 1 store.json, 2 index, 4 pages][length of store.json: u16 little endian][store.json][index] */
export const diskFolders: Fuzzer = {
  name: 'disk-folders',
  what: 'a disk tier’s directory: opened, set aside or refused; and used',
  form: 'bytes',
  tokens: ['"format"', '"store_id"', ':1', ':2', 'null', '{}', STORE_ID, 'MCIX'].map((text) => Buffer.from(text)),
  seeds: () => {
    const records = new RecordWriter(4096);
    for (let page = 0; page < 4; page++) records.put(entryOf(page));
    records.put({ key: 'too far', offset: 2 ** 40, length: 4096, checksum: 1 });
    records.put({ key: 'empty', offset: 40_960, length: 0, checksum: 0 });
    records.put({ key: 'askew', offset: 40_961, length: 10, checksum: 0 });
    const index = Buffer.concat([encodeHeader(STORE_ID), ...records.take()]);
    const store = Buffer.from(`${JSON.stringify({ format: 1, store_id: STORE_ID })}\n`);
    return [7, 3, 5, 6, 1].map((what) => folderInput(what, store, index));
  },
  async run(input) {
    const path = join(scratch.folder, 'store');
    layOut(path, input);
    const opened = await unlessRejected([DiskError], () =>
      DiskStore.open(path, DISK_MIN_BYTES, { nodeId: 'n', env, mode: 'buffered' }),
    );
    if (opened !== undefined) await use(opened.value);
    rmSync(path, { recursive: true, force: true });
  },
  async close() {
    scratch.remove();
  },
};

function folderInput(what: number, store: Buffer, index: Buffer): Buffer {
  const head = Buffer.from([what, store.length & 0xff, store.length >>> 8]);
  return Buffer.concat([head, store, index]);
}

function layOut(path: string, input: Buffer): void {
  const what = input[0] ?? 0;
  const storeEnd = 3 + (input.length < 3 ? 0 : input.readUInt16LE(1));
  mkdirSync(path, { recursive: true });
  if ((what & 1) !== 0) writeFileSync(join(path, 'store.json'), input.subarray(3, storeEnd));
  if ((what & 2) !== 0) writeFileSync(join(path, 'index'), input.subarray(storeEnd));
  if ((what & 4) !== 0) writeFileSync(join(path, 'pages'), PAGES);
}

/** Whatever was found: it can be read or missed, a new page can be written, and it can be closed. */
async function use(store: DiskStore): Promise<void> {
  try {
    const { entries, usedBytes, capacityBytes } = store.info();
    store.verify();
    const keys = store.keys();
    check(
      keys.length === entries && usedBytes <= capacityBytes,
      `${keys.length} keys of ${entries} pages, ${usedBytes} bytes`,
    );
    for (const key of keys.slice(0, 8)) await store.get(key);
    const page = Buffer.from('a page of the fuzzer');
    store.put('new page', page);
    await store.flush();
    const read = await store.get('new page');
    store.verify();
    check(read !== null && Buffer.compare(read, page) === 0, 'a new page is not found');
  } finally {
    await store.close();
  }
}
