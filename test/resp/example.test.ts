import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import test from 'ava';
import { noCertificates } from '../_support/certificates.js';
import { authorityOf, doorFiles, HOST } from '../_support/door-certificates.js';
import { startRecorded } from '../_support/node/recorded-node.js';
import { placeOf, startRespNode } from '../_support/resp/resp-fixture.js';
import { unless } from '../_support/unless.js';

const README = readFileSync('examples/redis/README.md', 'utf8');
const PRINTED = /```text\n(.*?)```/s.exec(README)?.[1] ?? '';

/** What the example prints with these variables. */
async function printed(variables: Readonly<Record<string, string>>): Promise<string> {
  const env = { ...process.env, ...variables };
  return (await promisify(execFile)(process.execPath, ['examples/redis/cache.mjs'], { env })).stdout;
}

test('resp: the example prints what its README says', async (t) => {
  const { host, port } = await startRespNode(t);
  t.is(await printed({ REDIS_URL: `redis://${host}:${port}` }), PRINTED);
});

unless(noCertificates)('resp: the example prints the same over TLS, with what its README says', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const files = doorFiles('resp', door);
  const { store } = await startRecorded(t, { ...files, resp_port: 0, global_segment_size: '32mb' });
  t.regex(README, /REDIS_URL=rediss:\S+ NODE_EXTRA_CA_CERTS=\S+ node cache\.mjs/);
  const url = `rediss://${HOST}:${placeOf(store).port}`;
  t.is(await printed({ REDIS_URL: url, NODE_EXTRA_CA_CERTS: door.tlsCaFile }), PRINTED);
});
