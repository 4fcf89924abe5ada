import { readFileSync } from 'node:fs';
import { ApiServer, noApiServer } from '../_support/deploy/api-server.js';
import { helmTemplate, manifestsIn, noHelm, yamlDocuments } from '../_support/deploy/manifests.js';
import { EVERYTHING, shownValues } from '../_support/deploy/values.js';
import { unless } from '../_support/unless.js';

/** Stand-ins for the resources of Prometheus Operator, which take any `spec`. */
function definition(kind: string): string {
  const plural = `${kind.toLowerCase()}s`;
  const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const version = { name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: open } };
  const spec = { group: 'monitoring.coreos.com', scope: 'Namespaced', names: { kind, plural }, versions: [version] };
  const metadata = { name: `${plural}.monitoring.coreos.com` };
  return JSON.stringify({ apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata, spec });
}

unless(noHelm || noApiServer)('deploy, API server: it takes every manifest of the chart', async (t) => {
  t.timeout(300_000);
  const server = await ApiServer.start();
  t.teardown(() => server.stop());
  const definitions = ['PodMonitor', 'PrometheusRule'].map(definition);
  const namespace = readFileSync('deploy/kubernetes/namespace/namespace.yaml', 'utf8');
  t.is(server.apply([namespace, ...definitions].join('\n---\n')).stderr, '');
  const waited = server.kubectl('wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s');
  t.is(waited.status, 0, waited.stderr);
  for (const values of ['', JSON.stringify(EVERYTHING), ...shownValues()]) {
    const text = helmTemplate(values).stdout;
    const { status, stdout, stderr } = server.apply(text);
    t.is(status, 0, `${values}\n${stderr}`);
    // Warnings are on the other stream.
    t.is(stderr, '', values);
    t.is(stdout.match(/serverside-applied$/gm)?.length, manifestsIn(text).length, stdout);
    // The volumes of a StatefulSet cannot be changed.
    server.kubectl('--namespace=meshcache', 'delete', 'statefulsets', '--all');
  }
  // The init container for zones may read machines, and nothing else.
  t.is(server.apply(helmTemplate({ zone: { from: 'machine' } }).stdout).status, 0);
  const may = (...words: readonly string[]): string =>
    server.kubectl('auth', 'can-i', ...words, '--as=system:serviceaccount:meshcache:meshcache').stdout.trim();
  t.deepEqual([may('get', 'nodes'), may('list', 'nodes'), may('get', 'secrets')], ['yes', 'no', 'no']);
  t.true(yamlDocuments(helmTemplate(EVERYTHING).stdout).length > 15);
  const wrong = helmTemplate().stdout.replace('fieldPath: spec.nodeName', 'fieldPath: spec.nodename');
  t.not(server.apply(wrong).status, 0);
});
