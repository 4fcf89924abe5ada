import type { ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { AuditAction, AuditDoor, AuditOutcome } from '../../../src/base/environment/audit.js';
import { type CliRun, type CliSurroundings, collect, firstLine, startCli, until } from '../cli/run-cli.js';
import { temporaryFolder } from '../disk/mounts.js';
import { freePort } from '../support.js';

/** A line of an audit log. */
export interface AuditLine {
  readonly seq: number;
  readonly time: string;
  readonly node: string;
  readonly door: AuditDoor;
  readonly action: AuditAction;
  readonly outcome: AuditOutcome;
  readonly reason?: string;
  readonly user?: string;
  readonly uid?: number;
  readonly pid?: number;
  readonly address?: string;
  readonly client?: string;
  readonly namespace?: string;
  readonly count?: number;
  readonly detail?: string;
}

/** The whole lines of an audit log; none if it is not there. Fails if one is no JSON object in ASCII. */
export function linesIn(path: string): AuditLine[] {
  const text = existsSync(path) ? readFileSync(path, 'latin1') : '';
  if (/[^\n\x20-\x7e]/.test(text)) throw new Error(`${path} has other characters than those of ASCII`);
  const lines = text.split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as AuditLine);
}

export interface AuditedNode {
  readonly node_id: string;
  readonly child: ChildProcess;
  readonly ended: Promise<CliRun>;
  readonly discoveryAddr: string;
  readonly clientSocket: string;
  readonly metricsUrl: string;
  /** Path of the audit log. */
  readonly path: string;
  /** Resolves with the first line for which `holds`, when it is there. */
  find(holds: (line: AuditLine) => boolean): Promise<AuditLine>;
  until: typeof until;
}

/**
 * Starts `meshcache node` with an audit log, in a folder of the test unless `path` says another. Killed at the end of
 * the test.
 */
export async function startAuditedNode(
  t: ExecutionContext,
  options: {
    readonly path?: string;
    readonly settings?: readonly string[];
    readonly surroundings?: CliSurroundings;
  } = {},
): Promise<AuditedNode> {
  const folder = temporaryFolder(t);
  const path = options.path ?? join(folder, 'audit.log');
  const clientSocket = join(folder, 'node.sock');
  const discoveryAddr = `127.0.0.1:${await freePort()}`;
  const settings = [
    'metrics_port=0',
    `client_socket=${clientSocket}`,
    `audit_log_path=${path}`,
    ...(options.settings ?? []),
  ];
  const args = ['node', '--discovery-addr', discoveryAddr, '--pool', '1mb', '--json'];
  const child = startCli([...args, ...settings.flatMap((setting) => ['-o', setting])], options.surroundings);
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as { readonly node_id: string; readonly metrics_endpoint: string };
  const find = async (holds: (line: AuditLine) => boolean): Promise<AuditLine> => {
    await until(() => linesIn(path).some(holds));
    return linesIn(path).find(holds) as AuditLine;
  };
  const metricsUrl = ready.metrics_endpoint;
  return { node_id: ready.node_id, child, ended, discoveryAddr, clientSocket, metricsUrl, path, find, until };
}
