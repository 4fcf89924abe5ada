import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RequestType } from '../../src/clients/wire/messages.js';
import { linesIn, startAuditedNode } from '../_support/audit/audited-node.js';
import { TestClient } from '../_support/clients/test-client.js';
import { hungDisk, hungMissing } from '../_support/disk/hung-disk.js';
import { mounted, mountSuffix, withMounts } from '../_support/disk/mounts.js';
import { unless } from '../_support/unless.js';

/**
 * Attaching and a PING wait for no file: far less than the 3 seconds after which a file counts as hung, on a busy
 * machine, too.
 */
const CALL_MAX_MS = 2_500;

async function metricOf(url: string, name: RegExp): Promise<number> {
  const text = await (await fetch(`http://${url}/metrics`)).text();
  const line = text.split('\n').find((each) => name.test(each));
  return Number(line?.split(' ').at(-1));
}

unless(hungMissing)('audit log: a file that hangs delays nobody, and has every line when it has healed', async (t) => {
  const disk = hungDisk(t);
  const path = join(disk.path, 'audit.log');
  const node = await startAuditedNode(t, { path, surroundings: { env: disk.env } });
  await node.find(({ action }) => action === 'start');
  disk.hang('read', 'write', 'sync', 'open', 'status');
  for (let i = 0; i < 3; i++) {
    const startMs = performance.now();
    const client = await TestClient.attach(t, node.clientSocket, { name: `engine-${i}` });
    await client.ok(RequestType.ping);
    t.true(performance.now() - startMs < CALL_MAX_MS, `call ${i}`);
  }
  await node.until(async () => (await metricOf(node.metricsUrl, /^meshcache_audit_failing\b/)) === 1);
  disk.heal();
  await node.find(({ client }) => client === 'engine-2');
  const names = linesIn(path).flatMap(({ action, client }) => (action === 'attach' ? [client] : []));
  t.deepEqual([...new Set(names)], ['engine-0', 'engine-1', 'engine-2']);
  await node.until(async () => (await metricOf(node.metricsUrl, /^meshcache_audit_failing\b/)) === 0);
});

unless(hungMissing)('audit log: a file that hangs does not keep the node from ending', async (t) => {
  const disk = hungDisk(t);
  const node = await startAuditedNode(t, { path: join(disk.path, 'audit.log'), surroundings: { env: disk.env } });
  await node.find(({ action }) => action === 'start');
  disk.hang('write');
  await TestClient.attach(t, node.clientSocket, { name: 'engine' });
  node.child.kill('SIGTERM');
  await node.ended;
  t.pass();
});

withMounts(
  `audit log: a full disk delays nobody, and the lines are there when it has room again${mountSuffix}`,
  async (t) => {
    const disk = mounted(t, 'tmpfs', 1);
    // Everybody may write to the top of a tmpfs; the node makes the folder.
    const folder = join(disk, 'log');
    const path = join(folder, 'audit.log');
    const node = await startAuditedNode(t, { path });
    await node.find(({ action }) => action === 'start');
    const fill = join(disk, 'fill');
    fillUp(fill);
    for (let i = 0; i < 30; i++) {
      const startMs = performance.now();
      // A name of its own for each, so that each has a line; together they are longer than what is left of a page.
      const client = await TestClient.attach(t, node.clientSocket, { name: `${'x'.repeat(60)}-${i}` });
      await client.ok(RequestType.ping);
      t.true(performance.now() - startMs < CALL_MAX_MS, `call ${i}`);
    }
    await node.until(async () => (await metricOf(node.metricsUrl, /^meshcache_audit_failing\b/)) === 1);
    rmSync(fill);
    await node.find(({ client }) => client?.endsWith('-29') === true);
    const seqs = linesIn(path).map(({ seq }) => seq);
    t.deepEqual(
      seqs,
      seqs.map((_, i) => i + 1),
    );
    t.is(await metricOf(node.metricsUrl, /^meshcache_audit_lines_total\{.*result="lost"/), 0);
    t.deepEqual(readdirSync(folder), ['audit.log']);
  },
);

/** Writes to a file until there is no room any more. */
function fillUp(path: string): void {
  for (let bytes = 2 ** 20; bytes >= 1; bytes = Math.floor(bytes / 2)) {
    for (;;) {
      try {
        writeFileSync(path, Buffer.alloc(bytes), { flag: 'a' });
      } catch {
        break;
      }
    }
  }
}
