// What src/native/addon/contract.ts says in numbers and orders. Exported as `constants`, and compared when the addon is
// loaded.
#pragma once

#include <cstdint>

namespace meshcache {

constexpr uint32_t kContractVersion = 3;

constexpr uint32_t kMemoryHugePages = 1;
constexpr uint32_t kMemoryShared = 2;

constexpr uint32_t kContractAccessRemoteRead = 1;
constexpr uint32_t kContractAccessLocalWrite = 2;

constexpr uint32_t kDescriptorRecordMaxBytes = 4096;
constexpr uint32_t kDescriptorReplyMaxBytes = 256;

constexpr uint32_t kOpColumns = 6;
constexpr char kOpStatusNames[] =
    "ok,bad_local_memory,refused,unreachable,rejected,remote_access,connection_lost,timeout,checksum,closed,"
    "device_error,stale";
constexpr char kRdmaStatNames[] =
    "readOps,readBytes,failedOps,checksumFailures,postedRequests,retriedOps,connections,acceptedConnections,"
    "connects,reconnects,refusedConnections,protocolErrors,regionTableReads,lostConnections,droppedEvents,staleOps";

}  // namespace meshcache
