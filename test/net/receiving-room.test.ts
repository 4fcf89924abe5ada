import test from 'ava';
import { RECEIVING_GROWN_MIN_BYTES, RECEIVING_WHOLE_MIN_BYTES } from '../../src/base/limits.js';
import { roomFor } from '../../src/net/arrivals.js';

const MIB = 2 ** 20;

test('receiving room: it grows with what comes, and little is ever copied into a larger room', (t) => {
  // Cause: with each growth all that had come was copied in one go, up to 128 MiB of a long value.
  for (const wholeBytes of [1, 100_000, MIB, 8 * MIB, 8 * MIB + 1, 64 * MIB, 512 * MIB]) {
    let roomBytes = 0;
    for (let bytes = 0; bytes < wholeBytes; ) {
      const copied = bytes;
      bytes = Math.min(wholeBytes, bytes + 64 * 1024);
      if (bytes <= roomBytes) continue;
      roomBytes = roomFor(bytes, { roomBytes, wholeBytes });
      t.true(roomBytes >= bytes && roomBytes <= wholeBytes);
      t.true(copied <= RECEIVING_WHOLE_MIN_BYTES, `${copied} of ${wholeBytes} bytes are copied`);
      if (bytes <= RECEIVING_WHOLE_MIN_BYTES) t.true(roomBytes <= Math.max(RECEIVING_GROWN_MIN_BYTES, 4 * bytes));
    }
    t.is(roomBytes, wholeBytes);
  }
});
