import { encodeLookups } from '../clients/wire/lookup-messages.js';
import { Capability, RequestType } from '../clients/wire/messages.js';
import type { Attachment } from './attachment.js';
import type { NodeLink } from './node-link.js';

/**
 * Whether the client states what came of its lookups, so that the node does not count its requests; earlier nodes count
 * neither.
 */
export function isLookupStated(link: NodeLink | undefined): boolean {
  return link !== undefined && (link.hello.capabilities & Capability.lookups) !== 0;
}

/**
 * The lookups of a program that is attached to a node. The node is told of each, also of those that it was never asked:
 * only the program's side knows what came of a lookup in several requests, of several pools, or without an answer.
 */
export class ClientLookups {
  readonly #attachment: Pick<Attachment, 'link'>;
  #asked = 0;
  #found = 0;
  /** Lookups that the node has not been told of. */
  #untold = { asked: 0, found: 0 };

  constructor(attachment: Pick<Attachment, 'link'>) {
    this.#attachment = attachment;
  }

  /** Pages that were looked up. */
  get asked(): number {
    return this.#asked;
  }

  /** Pages of lookups that were there from the first on without a gap. */
  get found(): number {
    return this.#found;
  }

  count(asked: number, found: number): void {
    this.#asked += asked;
    this.#found += found;
    this.#untold = { asked: this.#untold.asked + asked, found: this.#untold.found + found };
    this.tell();
  }

  /** Tells the node of what it has not been told of yet, if there is a node. */
  tell(): void {
    const { link } = this.#attachment;
    if (link === undefined || !isLookupStated(link) || this.#untold.asked === 0) return;
    if (link.tell(RequestType.lookups, encodeLookups(this.#untold))) this.#untold = { asked: 0, found: 0 };
  }
}
