/**
 * A page that its holder, live or not yet known, must drop if it is older. `isTie`: another content of the version
 * before `voidBelow` has won, which the holder may read.
 */
export interface Displaced {
  readonly nodeId: string;
  readonly key: string;
  readonly voidBelow: number;
  readonly isTie?: boolean;
}
