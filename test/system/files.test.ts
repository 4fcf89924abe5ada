import test from 'ava';
import { systemFiles } from '../../src/system/system-files.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { filesContract } from '../contract/files-contract.js';

filesContract(test, 'system files', (t) => ({ files: systemFiles, folder: temporaryFolder(t) }));
