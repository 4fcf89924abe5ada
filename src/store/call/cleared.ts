/** Which pages a call to clear removes. */
export interface Cleared {
  /** Version from which on pages stay. */
  readonly voidBelow: number;
  readonly isCleared: (key: string) => boolean;
}
