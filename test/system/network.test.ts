import test from 'ava';
import { type Connection, listenAt, type Network, portOf } from '../../src/base/environment/network.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemNetwork } from '../../src/system/system-network.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';
import { networkContract } from '../contract/network-contract.js';

networkContract(test, 'system network', (t) => ({
  network: systemNetwork,
  clock: patientClock,
  files: systemFiles,
  host: '127.0.0.1',
  foreignHost: '203.0.113.1',
  folder: temporaryFolder(t),
}));

/** A network whose accepted connections receive into memory that is used again, and whose listeners get copies. */
const reusingNetwork: Network = {
  ...systemNetwork,
  createServer: (options, onConnection) =>
    systemNetwork.createServer({ ...options, reusesMemory: true }, (connection) => {
      const on = connection.on.bind(connection) as (event: string, listener: (bytes: Buffer) => void) => unknown;
      const copying = (event: string, listener: (bytes: Buffer) => void): unknown =>
        on(event, event === 'data' ? (bytes) => listener(Buffer.from(bytes)) : listener);
      onConnection(Object.assign(connection, { on: copying }) as Connection);
    }),
};

networkContract(test, 'system network, memory used again', (t) => ({
  network: reusingNetwork,
  clock: patientClock,
  files: systemFiles,
  host: '127.0.0.1',
  foreignHost: '203.0.113.1',
  folder: temporaryFolder(t),
}));

test('system network: what accepted connections receive is in the same memory', async (t) => {
  const places = new Set<ArrayBufferLike>();
  let receivedBytes = 0;
  const server = systemNetwork.createServer({ reusesMemory: true }, (connection) => {
    connection.on('data', (bytes) => {
      places.add(bytes.buffer);
      receivedBytes += bytes.length;
      if (receivedBytes === 3_000_000) connection.end();
    });
  });
  await listenAt(server, { host: '127.0.0.1', port: 0 }, () => {});
  for (let i = 0; i < 3; i++) {
    const connection = systemNetwork.connect({ host: '127.0.0.1', port: portOf(server) });
    connection.write(Buffer.alloc(1_000_000));
    await until(() => receivedBytes === (i + 1) * 1_000_000);
    connection.destroy();
  }
  t.is(places.size, 1);
  await new Promise<void>((resolve) => server.close(resolve));
});
