import test, { type TestFn } from 'ava';
import { runningWorld } from '../../_support/sim/world/running.js';
import { filesContract } from '../../contract/files-contract.js';

filesContract(test.serial as TestFn, 'simulated files', (t) => {
  const { files } = runningWorld(t).host({ name: 'host' }).environment();
  files.statusSync('/tmp');
  return { files, folder: '/tmp' };
});
