import test, { type TestFn } from 'ava';
import { filesContract } from '../../contract/files-contract.js';
import { runningWorld } from './running.js';

filesContract(test.serial as TestFn, 'simulated files', (t) => {
  const { files } = runningWorld(t).host({ name: 'host' }).environment();
  files.statusSync('/tmp');
  return { files, folder: '/tmp' };
});
