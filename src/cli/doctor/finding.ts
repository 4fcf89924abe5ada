/** The result of one check of this machine. */
export interface Finding {
  readonly subject: string;
  readonly state: 'ok' | 'warning' | 'problem';
  readonly detail: string;
  /** What to do about it; absent when there is nothing to do. */
  readonly advice?: string;
}
