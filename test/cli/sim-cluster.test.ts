import test from 'ava';
import { runCli } from './run-cli.js';

test('sim cluster: several processes find what one finds', async (t) => {
  const words = ['sim', 'cluster', '--json', '--seed', '7', '--seeds', '3', '--duration', '2'];
  const [one, two] = await Promise.all([runCli(words), runCli([...words, '--jobs', '2'])]);
  const found = [one, two].map(({ stdout }) => ({ ...JSON.parse(stdout), wall_s: 0 }));
  t.deepEqual(found[1], found[0]);
  t.true(found[0].events > 100);
});
