import test from 'ava';
import { systemFiles } from '../../src/system/system-files.js';
import { systemNetwork } from '../../src/system/system-network.js';
import { networkContract } from '../contract/network-contract.js';
import { temporaryFolder } from '../disk/mounts.js';
import { patientClock } from '../patient-clock.js';

networkContract(test, 'system network', (t) => ({
  network: systemNetwork,
  clock: patientClock,
  files: systemFiles,
  host: '127.0.0.1',
  foreignHost: '203.0.113.1',
  folder: temporaryFolder(t),
}));
