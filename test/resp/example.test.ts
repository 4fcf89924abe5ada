import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import test from 'ava';
import { startRespNode } from '../_support/resp/resp-fixture.js';

test('resp: the example prints what its README says', async (t) => {
  const { host, port } = await startRespNode(t);
  const readme = readFileSync('examples/redis/README.md', 'utf8');
  const env = { ...process.env, REDIS_URL: `redis://${host}:${port}` };
  const { stdout } = await promisify(execFile)(process.execPath, ['examples/redis/cache.mjs'], { env });
  t.is(stdout, /```text\n(.*?)```/s.exec(readme)?.[1] ?? '');
});
