/**
 * `exercise PATH MODE SEED`: the exercise in a process of its own, e.g. without the addon. `hold PATH CAPACITY`: opens
 * and closes it.
 */

import { silentLogger } from '../../../src/base/environment/log.js';
import { PageFile } from '../../../src/disk/folder/page-file.js';
import { loadNative } from '../../../src/native/addon/loader.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { exercisePageFile } from '../../_support/disk/page-file-exercise.js';

const [what, path = '', argument = '', seed = ''] = process.argv.slice(2);
const hasAddon = loadNative().addon !== null;
if (what === 'exercise') {
  const result = await exercisePageFile(path, argument as 'auto' | 'direct' | 'buffered', Number(seed));
  console.log(JSON.stringify({ ...result, hasAddon }));
} else {
  const file = await PageFile.open(path, {
    capacityBytes: Number(argument),
    env: systemEnvironment({ log: silentLogger }),
  });
  const allocatedBytes = await file.allocatedBytes();
  await file.close();
  console.log(JSON.stringify({ mode: file.mode, allocatedBytes, hasAddon }));
}
