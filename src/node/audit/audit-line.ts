import type { AuditActor, AuditEvent } from '../../base/audit/audit.js';

/** The longest text of a line, in characters; what is beyond is cut off. */
const TEXT_MAX_CHARACTERS = 128;
const DETAIL_MAX_CHARACTERS = 256;

/** What a line says beside its event. */
export interface AuditLineFacts {
  /** Counts the lines of this start of the node: one that is missing was lost or removed, one that is there twice was written again after a failure. */
  readonly seq: number;
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  readonly nodeId: string;
  /** Events of its kind that the line stands for, of which it describes the last. */
  readonly count: number;
}

/** One line: a JSON object of ASCII, which no text in it can end. */
export function auditLine(
  { action, door, outcome, actor, namespace, reason, detail }: AuditEvent,
  facts: AuditLineFacts,
): string {
  const { seq, wallMs, nodeId, count } = facts;
  const { user, uid, pid, address, client }: AuditActor = actor ?? {};
  const json = JSON.stringify({
    seq,
    time: new Date(wallMs).toISOString(),
    node: short(nodeId),
    door,
    action,
    outcome,
    reason: short(reason),
    user: short(user),
    uid,
    pid,
    address: short(address),
    client: short(client),
    namespace: short(namespace),
    count: count > 1 ? count : undefined,
    detail: short(detail, DETAIL_MAX_CHARACTERS),
  });
  return `${json.replaceAll(/[\x7f-\uffff]/g, escaped)}\n`;
}

function short(text: string | undefined, maxCharacters = TEXT_MAX_CHARACTERS): string | undefined {
  return text !== undefined && text.length > maxCharacters ? `${text.slice(0, maxCharacters)}…` : text;
}

/** Terminals and programs for lines know line ends and directions of writing beyond ASCII, too. */
function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
