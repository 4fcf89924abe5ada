import test from 'ava';
import { staleDirectoryCase } from '../contract/stale-directory.js';

for (const verifyReads of [true, false]) {
  test(`stale directory: over TCP, verify_reads ${verifyReads}: what is freed is not read, however it was freed`, async (t) => {
    t.timeout(120_000);
    await staleDirectoryCase(t, { verify_reads: verifyReads });
  });
}
