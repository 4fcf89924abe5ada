import { statSync } from 'node:fs';
import test from 'ava';
import { encodePools, RequestType } from '../../src/clients/wire/messages.js';
import { linesIn, startAuditedNode } from '../_support/audit/audited-node.js';
import { helloBody, TestClient } from '../_support/clients/test-client.js';

test.serial('audit log: a node writes who has attached, cleared, detached, and who was refused', async (t) => {
  const node = await startAuditedNode(t);
  t.is(statSync(node.path).mode & 0o777, 0o600);
  const client = await TestClient.attach(t, node.clientSocket, { name: 'engine-1', pid: 77 });
  await client.ok(RequestType.clear, encodePools([]));
  client.socket.end();
  const stranger = await TestClient.connect(t, node.clientSocket);
  t.is((await stranger.request(RequestType.hello, helloBody({ minVersion: 99, maxVersion: 99 }))).header.status, 6);
  await node.find(({ action }) => action === 'detach');
  const refused = await node.find(({ outcome }) => outcome === 'refused');
  t.like(refused, { action: 'attach', door: 'client', reason: 'another version', node: node.node_id });
  const uid = process.getuid?.();
  const told = linesIn(node.path).filter(({ client: name }) => name === 'engine-1');
  t.deepEqual(
    told.map(({ action }) => action),
    ['attach', 'clear', 'detach'],
  );
  for (const line of told) t.like(line, { door: 'client', outcome: 'done' });
  const known = told.filter((line) => line.uid !== undefined);
  for (const line of known) t.like(line, { uid, pid: process.pid });
  node.child.kill('SIGTERM');
  t.is((await node.ended).status, 0);
  const lines = linesIn(node.path);
  t.deepEqual(
    lines.map(({ seq }) => seq),
    lines.map((_, i) => i + 1),
  );
  t.is(lines[0]?.action, 'start');
  t.is(lines.at(-1)?.action, 'stop');
});
