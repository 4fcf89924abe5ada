import { parentPort } from 'node:worker_threads';
import * as api from '../../../src/core/index.js';
import { computeGolden } from './golden-vectors.js';

parentPort?.postMessage(computeGolden(api, api.defaultCore()));
