import test, { type TestFn } from 'ava';
import { runningWorld } from '../../_support/sim/world/running.js';
import { networkContract } from '../../contract/network-contract.js';

networkContract(test.serial as TestFn, 'simulated network', (t) => {
  const host = runningWorld(t).host({ name: 'host' });
  const { network, clock, files } = host.environment();
  return { network, clock, files, host: '127.0.0.1', foreignHost: '10.99.0.1', folder: '/tmp' };
});
