import test from 'ava';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemNetwork } from '../../src/system/system-network.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { patientClock } from '../_support/patient-clock.js';
import { networkContract } from '../contract/network-contract.js';

networkContract(test, 'system network', (t) => ({
  network: systemNetwork,
  clock: patientClock,
  files: systemFiles,
  host: '127.0.0.1',
  foreignHost: '203.0.113.1',
  folder: temporaryFolder(t),
}));
