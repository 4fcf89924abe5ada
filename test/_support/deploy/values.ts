import { readFileSync } from 'node:fs';
import { fencesOf } from '../docs/markdown.js';

/** Everything that the chart can make. */
export const EVERYTHING = {
  config: {
    vnodes: 2_000,
    metrics_tls_cert_file: '/etc/meshcache-secrets/tls/tls.crt',
    metrics_tls_key_file: '/etc/meshcache-secrets/tls/tls.key',
    verify_reads: true,
  },
  secret: { drainTokenKey: 'drain-token' },
  secretConfig: { resp_password: { name: 'redis', key: 'password' } },
  secretMounts: ['tls'],
  imagePullSecrets: [{ name: 'registry' }],
  rdma: { enabled: true },
  zone: { from: 'machine', label: 'example.com/rack' },
  priorityClass: { create: true },
  inference: { config: { verify_reads: false }, pool: { hugepages: true } },
  storage: { enabled: true, disk: { enabled: true, storageClassName: 'fast' } },
  engines: [
    { name: 'one', kind: 'sglang', image: 'sglang', model: 'm', pool: { size: '8gb', hugepages: true } },
    { name: 'two', kind: 'vllm', image: 'vllm', model: 'm', cpuBytes: 34_359_738_368, pool: { size: '8gb' } },
  ],
  monitoring: {
    podMonitor: { enabled: true, labels: { release: 'prometheus' } },
    prometheusRule: { enabled: true },
    dashboard: { enabled: true },
  },
  networkPolicy: { enabled: true, from: [{ podSelector: {} }], metricsFrom: [{ namespaceSelector: {} }] },
};

/** The values that the document and the example show, as texts in YAML. */
export function shownValues(): string[] {
  const fences = fencesOf(readFileSync('docs/kubernetes.md', 'utf8')).filter(({ language }) => language === 'yaml');
  return [...fences.map(({ text }) => text), readFileSync('deploy/kubernetes/example/values.yaml', 'utf8')];
}
