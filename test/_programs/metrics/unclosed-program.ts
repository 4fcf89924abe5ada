import { Metrics } from '../../../src/node/machine/machine-node.js';

const metrics = new Metrics('n');
metrics.recordWrite(1, 0.001);
console.log(await metrics.renderPrometheus());
