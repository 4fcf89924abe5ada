import test from 'ava';
import { systemFiles } from '../../src/system/system-files.js';
import { filesContract } from '../contract/files-contract.js';
import { temporaryFolder } from '../disk/mounts.js';

filesContract(test, 'system files', (t) => ({ files: systemFiles, folder: temporaryFolder(t) }));
