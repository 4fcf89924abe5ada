import {
  NODE_REPORT_CLIENTS_MAX_COUNT,
  NODE_REPORT_NAMESPACE_TEXT_MAX_CHARACTERS,
  NODE_REPORT_NAMESPACES_MAX_COUNT,
} from '../../base/limits.js';
import { compareNames } from '../../base/names.js';
import type { AttachedNamespace } from '../../clients/client-server.js';
import type { NamespaceReport } from '../../metrics/node-report.js';

/** The namespaces of the attached clients, those with the most clients first. */
export function namespaceReports(namespaces: readonly AttachedNamespace[]): NamespaceReport[] {
  const most = [...namespaces].sort((a, b) => b.clients.length - a.clients.length || compareNames(a.digest, b.digest));
  return most.slice(0, NODE_REPORT_NAMESPACES_MAX_COUNT).map(namespaceReport);
}

function namespaceReport({ settings, digest, clients }: AttachedNamespace): NamespaceReport {
  const { modelName, dtype, layout, tag, fingerprint, tpRank, tpSize, ppRank, ppSize, isMlaModel } = settings;
  return {
    digest,
    model_name: cut(modelName),
    dtype: cut(dtype),
    layout: cut(layout),
    tag: cut(tag),
    fingerprint: cut(fingerprint),
    tp_rank: tpRank,
    tp_size: tpSize,
    pp_rank: ppRank,
    pp_size: ppSize,
    is_mla: isMlaModel,
    attached: clients.length,
    clients: [...new Set(clients)].sort(compareNames).slice(0, NODE_REPORT_CLIENTS_MAX_COUNT),
  };
}

/** Clients may give texts of any length, and the report goes to all that ask. */
function cut(text = ''): string {
  return text.slice(0, NODE_REPORT_NAMESPACE_TEXT_MAX_CHARACTERS);
}
