import { isDeepStrictEqual } from 'node:util';
import {
  OBJECT_HEADER_BYTES,
  OBJECT_KEY_MAX_BYTES,
  OBJECT_PAGE_MAX_BYTES,
  OBJECT_WRITER_MAX_BYTES,
} from '../../../src/base/limits.js';
import { crc32 } from '../../../src/memory/checksum.js';
import { answerOf, OBJECT_FAULTS } from '../../../src/objects/object-answer.js';
import { decodeHeader, encodeHeader, type ObjectHeader } from '../../../src/objects/object-format.js';
import { check, type Fuzzer } from '../fuzzer.js';

const CHECKSUM_AT = 12;
const PAGE: ObjectHeader = {
  ...{ kind: 'page', key: 'page-1', length: 4096, checksum: 7, generation: 2, version: 2 ** 41, expires: 0 },
  writer: 'node-1',
};

/** The first bytes of an object, as they are and with the checksum that they should have. */
export const objectHeaders: Fuzzer = {
  name: 'object-headers',
  what: 'headers of objects in an object store',
  form: 'bytes',
  tokens: ['4d4553484f424a0a', '0100', '01', '02', '03', 'ffffffffffffffff'].map((hex) => Buffer.from(hex, 'hex')),
  seeds: () => [
    encodeHeader(PAGE),
    encodeHeader({ ...PAGE, kind: 'deleted', length: 0 }),
    encodeHeader({ ...PAGE, kind: 'cleared', key: 'node-1' }),
    encodeHeader({ ...PAGE, key: 'k'.repeat(OBJECT_KEY_MAX_BYTES), writer: 'w'.repeat(OBJECT_WRITER_MAX_BYTES) }),
  ],
  run(input) {
    checkHeader(decodeHeader(input), input);
    if (input.length < OBJECT_HEADER_BYTES) return;
    const whole = Buffer.from(input.subarray(0, OBJECT_HEADER_BYTES));
    whole.writeUInt32LE(0, CHECKSUM_AT);
    whole.writeUInt32LE(crc32(whole), CHECKSUM_AT);
    checkHeader(decodeHeader(whole), whole);
  },
};

/** The body of an error of an object store, behind a status of three digits. */
export const objectErrors: Fuzzer = {
  name: 'object-errors',
  what: 'errors of object stores',
  form: 'bytes',
  tokens: ['<Code>', '</Code>', '<Region>', '</Region>', 'NoSuchBucket', 'SlowDown', '403', '404', '412', '503'].map(
    (text) => Buffer.from(text),
  ),
  seeds: () =>
    [
      '403<Error><Code>RequestTimeTooSkewed</Code></Error>',
      '404<Error><Code>NoSuchKey</Code></Error>',
      '301<Error><Code>PermanentRedirect</Code><Region>eu-central-1</Region></Error>',
      '200<html>',
      '503<html>',
    ].map((text) => Buffer.from(text)),
  run(input) {
    const status = Number(input.toString('latin1', 0, 3));
    if (!Number.isInteger(status) || status < 100) return;
    const isWrite = (input.at(-1) ?? 0) % 2 === 1;
    const answer = answerOf(status, {}, { parts: [input.subarray(3)], isWrite, aheadMs: Number.NaN });
    // Without a tag, nothing confirms a write.
    const isDone = status >= 200 && status < 300 && !isWrite;
    check((answer.kind === 'done') === isDone, `status ${status} is ${answer.kind}`);
    check(
      answer.kind !== 'absent' || input.includes('<Code>NoSuchKey</Code>'),
      'absent, but the store does not say so',
    );
    if (answer.kind !== 'failed') return;
    check(OBJECT_FAULTS.includes(answer.fault), `fault ${answer.fault}`);
    check(/^[\x20-\x7e]{1,200}$/.test(answer.detail), 'details that cannot be shown');
  },
};

function checkHeader(header: ObjectHeader | undefined, bytes: Buffer): void {
  if (header === undefined) return;
  const { key, writer, length, version, expires } = header;
  check(length >= 0 && length <= OBJECT_PAGE_MAX_BYTES, `${length} bytes`);
  check(version >= 0 && expires >= 0, 'a version that is none');
  if (!key.isWellFormed() || key.includes('\ufffd') || writer.includes('\ufffd')) return;
  check(Buffer.byteLength(key) <= OBJECT_KEY_MAX_BYTES, `a key of ${Buffer.byteLength(key)} bytes`);
  if (!Number.isSafeInteger(version) || !Number.isSafeInteger(expires)) return;
  check(isDeepStrictEqual(decodeHeader(encodeHeader(header)), header), `does not come back: ${bytes.length} bytes`);
}
