import { Metrics } from '../../src/machine-defaults.js';

const metrics = new Metrics('n');
metrics.recordWrite(1, 0.001);
console.log(await metrics.renderPrometheus());
