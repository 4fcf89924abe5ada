import type { Answer } from './api.js';
import { part, setHidden, setText } from './views/dom.js';

/** The form for the token of a node that wants one. The form itself sends nothing. */
export class TokenForm {
  readonly #section = part('token', HTMLElement);
  readonly #input = part('token-text', HTMLInputElement);
  readonly #message = part('token-message', HTMLElement);
  #isAsking = false;

  constructor(onToken: (token: string) => void) {
    part('token-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      setText(this.#message, 'Asking …');
      this.#isAsking = true;
      onToken(this.#input.value.trim());
    });
  }

  /** Shows the form while the node refuses to answer without a token. */
  update(answer: Answer): void {
    if (answer.kind === 'report') {
      setHidden(this.#section, true);
      this.#input.value = '';
      return;
    }
    if (answer.kind !== 'unauthorized') return;
    const wasHidden = this.#section.hidden;
    setHidden(this.#section, false);
    if (answer.wasGiven) setText(this.#message, 'The node did not accept this token.');
    else if (wasHidden || this.#isAsking) setText(this.#message, '');
    this.#isAsking = false;
    if (wasHidden) this.#input.focus();
  }
}
