import { Metrics } from '../../src/metrics/metrics.js';

const metrics = new Metrics('n');
metrics.recordWrite(1, 0.001);
console.log(await metrics.renderPrometheus());
