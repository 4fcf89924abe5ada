/** Why a peer could not serve a page that it was asked for; `no`: it did not say that the page is gone. */
export const Gone = {
  no: 0,
  /** The memory is not registered, or the page has been freed. */
  freed: 1,
  /** The bytes did not match their checksum. */
  damaged: 2,
} as const;
