import { compareNames } from '../../base/names.js';
import { formatSize } from '../../base/sizes.js';
import type { FittedTable } from '../../command/table.js';
import type { ClientsReport, NamespaceReport } from '../../metrics/node-report.js';
import type { NodeRow } from './status-report.js';

/** A setting that differs between nodes of one role, as it does during a rollout. */
export interface StatusDifference {
  readonly key: string;
  /** Each value (null: not set) and the nodes that have it, the most common value first. */
  readonly values: readonly { readonly value: string | number | boolean | null; readonly nodes: readonly string[] }[];
}

const VALUE_MAX_CHARACTERS = 80;

/** The settings in which nodes of one role differ. Nodes of an earlier version do not report theirs. */
export function settingDifferences(rows: readonly NodeRow[]): StatusDifference[] {
  const byRole = new Map<string, { node: string; settings: Readonly<Record<string, unknown>> }[]>();
  for (const row of rows) {
    if (row.state !== 'up' || typeof row.settings !== 'object' || row.settings === null) continue;
    const role = String(row.role);
    byRole.set(role, [...(byRole.get(role) ?? []), { node: row.node_id, settings: row.settings }]);
  }
  return [...byRole.values()].flatMap((nodes) => {
    const keys = new Set(nodes.flatMap(({ settings }) => Object.keys(settings)));
    return [...keys].sort().flatMap((key): StatusDifference[] => {
      const byValue = new Map<string | number | boolean | null, string[]>();
      for (const { node, settings } of nodes) {
        const value = plain(settings[key]);
        byValue.set(value, [...(byValue.get(value) ?? []), node]);
      }
      if (byValue.size < 2) return [];
      const values = [...byValue].map(([value, names]) => ({ value, nodes: names }));
      return [{ key, values: values.sort((a, b) => b.nodes.length - a.nodes.length) }];
    });
  });
}

/** The difference as a line of text. */
export function differenceText({ key, values }: StatusDifference): string {
  const parts = values.map(({ value, nodes }) => `${shown(key, value)} on ${nodes.join(', ')}`);
  return `setting ${key} differs: ${parts.join('; ')}`;
}

function plain(value: unknown): string | number | boolean | null {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null;
}

function shown(key: string, value: string | number | boolean | null): string {
  if (value === null) return 'not set';
  if (typeof value === 'number' && key.endsWith('_size')) return formatSize(value);
  const text = String(value);
  return text.length > VALUE_MAX_CHARACTERS ? `${text.slice(0, VALUE_MAX_CHARACTERS)}…` : text;
}

/** A client of a node, by name. */
interface NamespaceClient {
  readonly client: string;
  readonly node_id: string;
}

/** A namespace of the cluster: its settings, and its clients on each node. */
export interface ClusterNamespace extends Omit<NamespaceReport, 'clients' | 'attached'> {
  /** Number of attached clients, on all nodes. */
  readonly attached: number;
  readonly clients: readonly NamespaceClient[];
}

/** The parts of a namespace to compare with others. */
interface Identity {
  /**
   * Framework and ranks. Only namespaces with the same ones are compared, because pages of different ranks of an engine
   * are meant to differ.
   */
  readonly kind: string;
  /** Facts by name: the fields of the namespace, and each pair of its layout. */
  readonly facts: ReadonlyMap<string, string>;
  readonly clients: readonly NamespaceClient[];
}

/** The clients of each value of a fact. */
type ClientsByValue = Map<string, NamespaceClient[]>;

/** Value of a fact that a namespace does not have. */
const ABSENT = 'none';
/** Value of a layout's pair that gives a rank and the number of ranks. */
const RANK = /^(\d+)\/(\d+)$/;
/**
 * Name of the layout's pair that makes a namespace private: a fact about the pages could not be read, so they are
 * shared with no one.
 */
const PRIVATE = 'private';
/** Most clients that a warning names for each value. */
const NAMED_CLIENTS_MAX_COUNT = 3;
/** Most warnings in one status. */
const WARNINGS_MAX_COUNT = 20;

/**
 * Warnings for an operator about clients that share no pages although their namespaces differ in only one fact, and
 * about clients that share with no one.
 */
export function namespaceWarnings(namespaces: readonly ClusterNamespace[]): string[] {
  const isPrivate = ({ layout }: ClusterNamespace): boolean => pairsOf(layout)?.has(PRIVATE) === true;
  const warnings = [
    ...aloneOf(namespaces.filter(isPrivate).flatMap(({ clients }) => clients)),
    ...differingInOne(namespaces.filter((namespace) => !isPrivate(namespace)).map(identityOf)),
  ];
  const further = warnings.length - WARNINGS_MAX_COUNT;
  if (further <= 0) return warnings;
  return [
    ...warnings.slice(0, WARNINGS_MAX_COUNT),
    `${further} more warnings about namespaces are left out; --json has all namespaces`,
  ];
}

function aloneOf(clients: readonly NamespaceClient[]): string[] {
  const names = namesOf(clients);
  if (names.length === 0) return [];
  const [shares, logs] = names.length === 1 ? ['shares', 'its log says'] : ['share', 'their logs say'];
  return [`${shortened(names)} ${shares} with nobody: private namespace; ${logs} which fact is missing`];
}

/** One warning for each fact, and each set of its values, in which otherwise equal namespaces differ. */
function differingInOne(identities: readonly Identity[]): string[] {
  const names = new Set(identities.flatMap(({ facts }) => [...facts.keys()]));
  const differences = new Map<string, { readonly name: string; readonly clients: ClientsByValue }>();
  for (const name of names) {
    for (const clients of apartIn(name, identities)) {
      // Each rank of the same engines has the same difference, which is reported once.
      const key = JSON.stringify([name, ...[...clients.keys()].sort()]);
      const known = differences.get(key);
      if (known === undefined) differences.set(key, { name, clients });
      else for (const [value, some] of clients) known.clients.get(value)?.push(...some);
    }
  }
  return [...differences.values()].map(({ name, clients }) => differenceOf(name, clients));
}

/** The clients of each value of the fact `name`, for each group of namespaces that differ only in that fact. */
function apartIn(name: string, identities: readonly Identity[]): ClientsByValue[] {
  const byRest = new Map<string, ClientsByValue>();
  for (const { kind, facts, clients } of identities) {
    const rest = JSON.stringify([kind, ...[...facts].filter(([other]) => other !== name).sort(byFirst)]);
    const same: ClientsByValue = byRest.get(rest) ?? new Map();
    byRest.set(rest, same);
    const fact = facts.get(name);
    const value = fact === undefined ? ABSENT : `'${fact}'`;
    same.set(value, [...(same.get(value) ?? []), ...clients]);
  }
  return [...byRest.values()].filter(({ size }) => size > 1);
}

function differenceOf(name: string, clients: ClientsByValue): string {
  const who = [...clients.values()].map((some) => shortened(namesOf(some)));
  const meaning = name === 'fingerprint' ? ' (other weights)' : '';
  const values = listed([...clients.keys()]);
  return `clients ${listed(who)} share no pages: their namespaces differ only in ${name}${meaning}: ${values}`;
}

function identityOf({ layout, clients, ...namespace }: ClusterNamespace): Identity {
  const { model_name: model, dtype, tag, fingerprint, tp_rank, tp_size, pp_rank, pp_size, is_mla } = namespace;
  const facts = new Map<string, string>();
  const kind: (string | number)[] = [is_mla ? 'any' : tp_rank, pp_rank];
  for (const [name, value] of Object.entries({ model, dtype, tag, fingerprint, tp_size, pp_size, is_mla })) {
    if (value !== '') facts.set(name, String(value));
  }
  const pairs = pairsOf(layout);
  if (pairs === undefined) {
    if (layout !== '') facts.set('layout', layout);
    return { kind: JSON.stringify(kind), facts, clients };
  }
  const [framework = '', version = ''] = frameworkOf(layout).split('/');
  kind.push(framework);
  facts.set('layout version', version);
  for (const [name, value] of pairs) {
    const [, rank, size] = RANK.exec(value) ?? [];
    if (rank !== undefined) kind.push(`${name} ${rank}`);
    facts.set(`layout ${name}`, size === undefined ? value : `${size} ranks`);
  }
  return { kind: JSON.stringify(kind), facts, clients };
}

/** The pairs of a layout, such as `sglang/1 cp=0/2 heads=8x128`, by name; undefined if it has another form. */
function pairsOf(layout: string): Map<string, string> | undefined {
  const pairs = layout
    .slice(frameworkOf(layout).length)
    .split(' ')
    .filter((pair) => pair !== '');
  if (pairs.length === 0 || pairs.some((pair) => pair.indexOf('=') < 1)) return undefined;
  return new Map(pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
}

/** The first word of a layout unless it is a pair: a framework, and the version of its list of facts. */
function frameworkOf(layout: string): string {
  const [first = ''] = layout.split(' ');
  return first.includes('=') ? '' : first;
}

/** Clients by name and node, each once. */
function namesOf(clients: readonly NamespaceClient[]): string[] {
  return [...new Set(clients.map(({ client, node_id }) => `${client} on ${node_id}`))];
}

function shortened(names: readonly string[]): string {
  const further = names.length - NAMED_CLIENTS_MAX_COUNT;
  if (further <= 0) return names.join(', ');
  return `${names.slice(0, NAMED_CLIENTS_MAX_COUNT).join(', ')} (and ${further} more)`;
}

/** `a and b`, `a, b and c`. */
function listed(texts: readonly string[]): string {
  return texts.length < 2 ? texts.join() : `${texts.slice(0, -1).join(', ')} and ${texts.at(-1)}`;
}

function byFirst([a]: readonly [string, string], [b]: readonly [string, string]): number {
  return a < b ? -1 : Number(a > b);
}

/** The namespaces of one node's clients, as far as the node reports them. */
interface NamespacesOfNode {
  readonly node_id: string;
  readonly clients?: Pick<ClientsReport, 'namespaces'> | undefined;
}

/** Columns that a narrow terminal may leave out, in this order. */
const OPTIONAL_COLUMNS = ['layout', 'fingerprint', 'tag', 'dtype', 'ranks'];
/** Characters of a digest to show; --json has them all. */
const SHOWN_DIGEST_CHARACTERS = 8;

/** The namespaces of the attached clients of all nodes, each once, sorted by the name of the model. */
export function clusterNamespaces(nodes: readonly NamespacesOfNode[]): ClusterNamespace[] {
  const byDigest = new Map<string, ClusterNamespace & { attached: number; clients: NamespaceClient[] }>();
  for (const { node_id, clients: report } of nodes) {
    for (const { clients, attached, ...settings } of report?.namespaces ?? []) {
      const here = clients.map((client) => ({ client, node_id }));
      const known = byDigest.get(settings.digest);
      if (known === undefined) {
        byDigest.set(settings.digest, { ...settings, attached, clients: here });
      } else {
        known.attached += attached;
        known.clients.push(...here);
      }
    }
  }
  return [...byDigest.values()].sort(
    (a, b) => compareNames(a.model_name, b.model_name) || compareNames(a.digest, b.digest),
  );
}

/** Fitting of a table of these rows: a column that distinguishes two namespaces of one model is not left out. */
export function namespaceColumns(rows: readonly Readonly<Record<string, string>>[]): FittedTable {
  const firstOf = new Map<string | undefined, Readonly<Record<string, string>>>();
  for (const row of rows) if (!firstOf.has(row.model)) firstOf.set(row.model, row);
  const isAlike = (name: string): boolean => rows.every((row) => row[name] === firstOf.get(row.model)?.[name]);
  return { optional: OPTIONAL_COLUMNS.filter(isAlike), rightColumns: new Set(['clients']) };
}

/** Rows of a table of the namespaces. */
export function namespaceRows(namespaces: readonly ClusterNamespace[]): Record<string, string>[] {
  return namespaces.map((namespace) => {
    const { digest, model_name, dtype, tag, fingerprint, layout, attached, clients } = namespace;
    return {
      namespace: digest.slice(0, SHOWN_DIGEST_CHARACTERS),
      model: model_name,
      dtype,
      tag,
      fingerprint,
      ranks: ranksOf(namespace),
      clients: String(attached),
      nodes: [...new Set(clients.map(({ node_id }) => node_id))].join(', '),
      layout,
    };
  });
}

/** `tp 0/2 pp 0/1`; a size of 1 is left out. With MLA, all tensor-parallel ranks have the same pages. */
function ranksOf({ tp_rank, tp_size, pp_rank, pp_size, is_mla }: ClusterNamespace): string {
  const ranks: string[] = [];
  if (tp_size > 1) ranks.push(`tp ${is_mla ? 'any' : tp_rank}/${tp_size}`);
  if (pp_size > 1) ranks.push(`pp ${pp_rank}/${pp_size}`);
  return ranks.join(' ');
}
