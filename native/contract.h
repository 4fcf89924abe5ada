// What src/native/addon/contract.ts says in numbers and orders. Exported as `constants`, and compared when the addon is
// loaded.
#pragma once

#include <cstdint>

namespace meshcache {

constexpr uint32_t kContractVersion = 11;

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
constexpr char kRdmaEventKindNames[] =
    "connect_failed,rejected,rejected_peer,connection_lost,device_error,port_state";
constexpr char kRdmaEventCauseNames[] =
    "system_error,completion_error,wrong_secret,unknown_protocol,too_many_connections,refused_secret,refused_version,"
    "refused_too_many,refused_closing,refused,nobody_listens,unreachable,went_away,closed_by_peer,no_answer,no_progress,"
    "read_too_late,not_posted,no_address,other_device,completion_queue_full,other_engine,no_region_table,device_failed,"
    "completion_queue_failed,port_active,port_down";
constexpr char kRdmaStatNames[] =
    "readOps,readBytes,failedOps,checksumFailures,postedRequests,retriedOps,connections,acceptedConnections,"
    "connects,reconnects,refusedConnections,protocolErrors,regionTableReads,lostConnections,droppedEvents,staleOps";

}  // namespace meshcache
