import { readFileSync } from 'node:fs';
import { DiskError } from '../../../src/base/errors.js';
import { KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../../src/base/limits.js';
import { JournalFile } from '../../../src/disk/journal/journal-file.js';
import {
  BLOCK_HEADER_BYTES,
  bodyLength,
  checkHeader,
  encodeHeader,
  HEADER_BYTES,
  type IndexEntry,
  isBodyWhole,
  JournalDamage,
  putRecordBytes,
  RecordWriter,
  Replay,
} from '../../../src/disk/journal/journal-format.js';
import { crc32 } from '../../../src/memory/checksum.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { ManualClock } from '../../_support/clock.js';
import { entryOf, STORE_ID } from '../../_support/disk/journals.js';
import { check, type Fuzzer, unlessRefused, unlessRejected } from '../fuzzer.js';
import { Scratch } from '../scratch-file.js';

const TOKENS = [
  '01',
  '02',
  '03',
  '04',
  '00000000',
  '05000000',
  '00000100',
  'ffffffff',
  '706167652d31',
  'c3a9',
  'c328',
].map((hex) => Buffer.from(hex, 'hex'));
const scratch = new Scratch();
const env = systemEnvironment({ clock: new ManualClock() });

/** The body of a block whose checksums hold. */
export const journalRecords: Fuzzer = {
  name: 'journal-records',
  what: 'records of the disk index',
  form: 'bytes',
  tokens: TOKENS,
  seeds: () => sampleBlocks().map((block) => block.subarray(BLOCK_HEADER_BYTES)),
  allocationMaxBytes: (inputBytes) => 8 * inputBytes + 16_384,
  run(input) {
    const replay = new Replay();
    const applied = unlessRefused([JournalDamage], () => {
      for (let at = 0; at < input.length; ) {
        const next = replay.apply(input, at, 3);
        check(next > at && next <= input.length, 'records end elsewhere than they do');
        at = next;
      }
    });
    if (applied !== undefined) checkEntries([...replay.entries()], replay.liveBytes, input.length);
  },
};

/**
 * [holds: u8][file]: of a file's checksums those are made right whose bits are set: 1 the header's, 2 those of blocks,
 * 4 those of their bodies.
 */
export const journalFiles: Fuzzer = {
  name: 'journal-files',
  what: 'files of the disk index: opened, and the same once more; or refused and left as they are',
  form: 'bytes',
  tokens: [...TOKENS, encodeHeader(STORE_ID), Buffer.alloc(64)],
  seeds: () => {
    const file = Buffer.concat([encodeHeader(STORE_ID), ...sampleBlocks()]);
    const files = [
      file,
      Buffer.concat([file, Buffer.alloc(100)]),
      file.subarray(0, file.length - 3),
      file.subarray(0, HEADER_BYTES),
      Buffer.concat([asVersion2(encodeHeader(STORE_ID)), ...sampleBlocks()]),
    ];
    return files.flatMap((bytes) => [7, 3, 0].map((holds) => Buffer.concat([Buffer.from([holds]), bytes])));
  },
  // A chunk of the file, and what its tail is compared with.
  allocationMaxBytes: (inputBytes) => (1 << 20) + 8 * inputBytes,
  async run(input) {
    const bytes = mended(Buffer.from(input.subarray(1)), input[0] ?? 0);
    const path = scratch.write('index', bytes);
    const found = await unlessRejected([DiskError], () => JournalFile.open(path, STORE_ID, env));
    if (found === undefined) {
      check(readFileSync(path).equals(bytes), 'refused, and not left as it was');
      return;
    }
    const { file, entries, liveBytes } = found.value;
    await file.close();
    checkEntries(entries, liveBytes, bytes.length);
    const kept = readFileSync(path);
    // The magic, the version and the store; the rest of a header is not looked at.
    check(kept.subarray(0, 24).equals(encodeHeader(STORE_ID).subarray(0, 24)), 'not of this version afterwards');
    const rest = bytes.subarray(HEADER_BYTES, kept.length);
    check(rest.equals(kept.subarray(HEADER_BYTES)), 'changed otherwise than cut off');
    check(file.bytes === kept.length, 'of another length than it says');
    const again = await JournalFile.open(path, STORE_ID, env);
    await again.file.close();
    check(JSON.stringify(again.entries) === JSON.stringify(entries), 'other pages when it is opened once more');
  },
  async close() {
    scratch.remove();
  },
};

/** The header and block decoders by themselves, against any bytes. */
export const journalHeaders: Fuzzer = {
  name: 'journal-headers',
  what: 'headers of the disk index and of its blocks',
  form: 'bytes',
  inputMaxBytes: 256,
  tokens: [encodeHeader(STORE_ID), Buffer.from('MCIX')],
  seeds: () => [encodeHeader(STORE_ID), asVersion2(encodeHeader(STORE_ID)), ...sampleBlocks()],
  run(input) {
    const isHeader = unlessRefused([JournalDamage], () => checkHeader(input, STORE_ID)) !== undefined;
    const header3 = encodeHeader(STORE_ID);
    const isKnown = [header3, asVersion2(header3)].some((known) => input.subarray(0, HEADER_BYTES).equals(known));
    check(!isHeader || isKnown, 'takes another header');
    if (input.length < BLOCK_HEADER_BYTES) return;
    const header = input.subarray(0, BLOCK_HEADER_BYTES);
    const length = bodyLength(header);
    if (length === undefined) return;
    check(length >= 1 && length <= 2 ** 20, `a body of ${length} bytes`);
    const body = input.subarray(BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES + length);
    check(isBodyWhole(header, body) === (crc32(body) === header.readUInt32LE(4)), 'a body that is not whole');
  },
};

function checkEntries(entries: readonly IndexEntry[], liveBytes: number, fileBytes: number): void {
  check(new Set(entries.map(({ key }) => key)).size === entries.length, 'a key twice');
  check(new Set(entries.map(({ offset }) => offset)).size === entries.length, 'a place twice');
  for (const { key, offset, length, checksum } of entries) {
    check(Buffer.byteLength(key) <= KEY_MAX_BYTES + KEY_PREFIX_BYTES, `a key of ${Buffer.byteLength(key)} bytes`);
    check(Number.isSafeInteger(offset) && offset >= 0 && offset < 2 ** 48, `offset ${offset}`);
    check(length >>> 0 === length && checksum >>> 0 === checksum, 'length or checksum');
  }
  const exactBytes = entries.reduce((sum, { key }) => sum + putRecordBytes(key), 0);
  check(liveBytes === exactBytes, `${liveBytes} bytes counted for records of ${exactBytes}`);
  // A page counts as if it expired and another node had placed it here, which takes 12 bytes more.
  check(liveBytes <= fileBytes + 12 * entries.length, 'more pages than records');
}

function sampleBlocks(): Buffer[] {
  const records = new RecordWriter(200);
  for (let page = 0; page < 6; page++) records.put(entryOf(page));
  records.use(4096);
  records.remove('page-2');
  records.put({ key: 'grün', offset: 0, length: 1, checksum: 2 });
  records.put({ key: 'expires', offset: 2 ** 20, length: 1, checksum: 2, expires: 2 ** 52 });
  records.put({ key: '', offset: 2 ** 47, length: 2 ** 32 - 1, checksum: 2 ** 32 - 1 });
  records.put(entryOf(9));
  return records.take();
}

/** The header of the version before. */
function asVersion2(header: Buffer): Buffer {
  const before = Buffer.from(header);
  before.writeUInt32LE(2, 4);
  before.writeUInt32LE(crc32(before.subarray(0, 28)), 28);
  return before;
}

function mended(bytes: Buffer, holds: number): Buffer {
  if (bytes.length < HEADER_BYTES) return bytes;
  if ((holds & 1) !== 0) bytes.writeUInt32LE(crc32(bytes.subarray(0, 28)), 28);
  for (let at = HEADER_BYTES; bytes.length - at >= BLOCK_HEADER_BYTES; ) {
    const end = Math.min(bytes.length, at + BLOCK_HEADER_BYTES + bytes.readUInt32LE(at));
    if ((holds & 4) !== 0) bytes.writeUInt32LE(crc32(bytes.subarray(at + BLOCK_HEADER_BYTES, end)), at + 4);
    if ((holds & 2) !== 0) bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 8)), at + 8);
    at = end;
  }
  return bytes;
}
