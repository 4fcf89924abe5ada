/**
 * Writes golden.json anew: `node build.config.mjs wasm test && node build/test/data-write-golden.js && npx biome format
 * --write test/data/golden.json`. The vectors are the wire contract: a change here means that clusters of mixed
 * versions disagree on where keys live.
 */
import { writeFileSync } from 'node:fs';
import * as api from '../../src/core/index.js';
import { computeGolden } from '../_programs/core/golden-vectors.js';

writeFileSync('test/data/golden.json', `${JSON.stringify(computeGolden(api, api.defaultCore()), null, 1)}\n`);
