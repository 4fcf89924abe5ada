/**
 * A page that its holder must drop if its version is below `voidBelow`. The holder is live or not yet known. With
 * `isTie`, another content with the version just before `voidBelow` has won, and the holder may read that one.
 */
export interface Displaced {
  readonly nodeId: string;
  readonly key: string;
  readonly voidBelow: number;
  readonly isTie?: boolean;
}
