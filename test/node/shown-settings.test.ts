import test from 'ava';
import { toCamelCase } from '../../src/base/names.js';
import { CONFIG_KEYS, MeshCacheConfig } from '../../src/config.js';
import { SHOWN_SETTINGS, shownSettings } from '../../src/node/reporting/shown-settings.js';

/** Keys that belong to one host, and secrets. */
const OF_ONE_NODE =
  /_port$|_host$|_path$|_file$|_socket$|_group$|hostname$|^device_|^ib_|^gid_|^zone$|^node_id$|_addr$|^etcd_/;
const SECRET = /secret|password|token|access_key/;
/** Where an object store is reached, which hosts in several places have differently. */
const OF_ONE_PLACE: ReadonlySet<string> = new Set(['object_store_endpoint', 'object_store_region']);

test('shown settings: each configuration key is shown, belongs to one host or place, or is a secret', (t) => {
  for (const key of CONFIG_KEYS) {
    const isOther = OF_ONE_NODE.test(key) || SECRET.test(key) || OF_ONE_PLACE.has(key);
    t.not(SHOWN_SETTINGS.includes(key), isOther, key);
  }
  for (const key of SHOWN_SETTINGS) t.true(CONFIG_KEYS.includes(key), key);
});

test('shown settings: a report has plain values, objects as text, and nothing that is not set', (t) => {
  const config = new MeshCacheConfig({
    discoveryAddr: '10.0.0.1:1',
    clusterSecret: 'a secret of some length',
    evictionPolicy: 's3fifo',
    namespaceWritePolicies: { a: 'storage' },
    namespace: '',
  } as never);
  const settings = shownSettings(config);
  t.like(settings, { eviction_policy: 's3fifo', global_segment_size: 2 ** 32, verify_reads: true, namespace: '' });
  t.is(settings.namespace_write_policies, JSON.stringify(config.namespaceWritePolicies));
  t.false('fingerprint' in settings);
  t.notRegex(JSON.stringify(settings), /a secret of some length/);
  t.true(Object.keys(settings).every((key) => toCamelCase(key) in config));
});
