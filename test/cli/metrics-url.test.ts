import test from 'ava';
import { metricsUrl } from '../../src/cli/settings/endpoints.js';

test('metrics URL: of a server on every address, the one that the node is reached at', (t) => {
  t.is(metricsUrl('10.0.0.1:31997'), 'http://10.0.0.1:31997/');
  t.is(metricsUrl('0.0.0.0:31997', { host: '10.0.0.2' }), 'http://10.0.0.2:31997/');
  t.is(metricsUrl('[::]:31997', { host: 'fd00::2' }), 'http://[fd00::2]:31997/');
  t.is(metricsUrl('0.0.0.0:31997'), 'http://127.0.0.1:31997/');
  t.is(metricsUrl('10.0.0.1:31997', { isTls: true }), 'https://10.0.0.1:31997/');
  t.is(metricsUrl(''), undefined);
  t.is(metricsUrl(undefined), undefined);
});
