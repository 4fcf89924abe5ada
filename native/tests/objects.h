// What the handles of the fake libraries point to. A handle is the public struct of the library, extended.
#pragma once

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>

#include "fabric.h"

namespace meshcache::fake {

// A descriptor that is readable while something waits.
class Signal {
 public:
  Signal() : fd_(eventfd(0, EFD_CLOEXEC)) {
    if (fd_ < 0) misuse("eventfd: the test has no file descriptors left");
  }
  ~Signal() { close(fd_); }
  Signal(const Signal&) = delete;
  int fd() const { return fd_; }
  // Written for each event, so that edge-triggered waits work, too.
  void raise() {
    const uint64_t one = 1;
    if (write(fd_, &one, sizeof one) != sizeof one) misuse("eventfd write");
    raised_ = true;
  }
  void lower() {
    uint64_t value;
    if (raised_ && read(fd_, &value, sizeof value) != sizeof value) misuse("eventfd read");
    raised_ = false;
  }
  bool non_blocking() const;

 private:
  const int fd_;
  bool raised_ = false;
};

struct AsyncEvent {
  ibv_event_type type;
  uint64_t qp;  // serial; 0: of the port or the device
};

struct Device : ibv_context {
  ibv_device identity{};
  DeviceSpec spec;
  Signal signal;
  std::deque<AsyncEvent> async_events;
  unsigned async_unacked = 0;
  bool link_up = true;
  bool stalled = false;
  bool paused = false;
  bool removed = false;
  uint64_t read_bytes = 0;
  uint64_t work_requests = 0;

  bool answers() const { return link_up && !stalled && !removed; }
};

struct Pd : ibv_pd {
  uint64_t serial;
  Device* device;
};

struct Mr : ibv_mr {
  uint64_t serial;
  int access;
};

struct CompChannel : ibv_comp_channel {
  uint64_t serial;
  Signal signal;
  std::deque<Cq*> events;
};

struct Completion {
  ibv_wc wc;
  uint64_t qp;
  uint32_t slots;  // of the send queue, given back when this is polled
};

struct Cq : ibv_cq {
  uint64_t serial;
  Device* device;
  std::deque<Completion> entries;
  bool armed = false;
  unsigned unacked = 0;
};

struct WorkRequest {
  uint64_t sequence;
  uint64_t wr_id;
  ibv_wr_opcode opcode;
  bool signaled;
  std::vector<ibv_sge> sges;
  uint64_t remote_addr;
  uint32_t rkey;
  uint64_t bytes;
};

struct Qp : ibv_qp {
  uint64_t serial;
  Device* device;
  uint64_t peer = 0;           // serial of the other end
  ibv_qp_state hardware = IBV_QPS_INIT;  // `state` of the public struct is what software was told
  ibv_qp_cap cap{};
  bool signal_all = false;
  uint32_t read_depth = 0;       // max_rd_atomic
  uint32_t responder_depth = 0;  // max_dest_rd_atomic
  unsigned access = 0;           // what the other end may do
  std::deque<WorkRequest> queue;
  uint64_t next_sequence = 0;
  uint64_t executing = 0;  // 1 + sequence of the request that is scheduled
  uint32_t slots_used = 0;
  uint32_t slots_pending = 0;  // of completed requests without a completion
  unsigned async_unacked = 0;
  bool stuck = false;
  bool flush_scheduled = false;
};

struct CmEvent : rdma_cm_event {
  uint64_t owner;  // serial of the id that waits for the acknowledgement
  Id* subject;
  std::vector<uint8_t> data;  // goes with the acknowledgement
};

struct EventChannel : rdma_event_channel {
  uint64_t serial;
  Signal signal;
  std::deque<std::unique_ptr<CmEvent>> events;
  unsigned unacked = 0;
};

enum class IdState {
  kIdle,
  kBound,
  kListening,
  kResolvingAddress,
  kAddressResolved,
  kResolvingRoute,
  kRouteResolved,
  kRequestSent,
  kRequestReceived,
  kReplySent,
  kReplyReceived,
  kConnected,
  kDisconnected,
  kDead,
};

struct Id : rdma_cm_id {
  uint64_t serial;
  IdState state = IdState::kIdle;
  Device* device = nullptr;
  uint16_t port = 0;       // host order
  uint64_t peer = 0;       // serial of the other end
  uint64_t listener = 0;   // of an id that came with a connection request
  bool handed_out = true;  // false: the connection request has not been fetched yet
  bool accept_failed = false;
  int backlog = 0;
  uint32_t waiting = 0;  // connection requests in the channel
  unsigned unacked = 0;
  rdma_conn_param request{};  // of the active side, as it gave it
  uint64_t remote_qp = 0;
  uint32_t remote_read_depth = 0;
  uint32_t remote_responder_depth = 0;
  bool timewait_scheduled = false;
};

inline Device* as_device(ibv_context* context) { return static_cast<Device*>(context); }

template <class T>
T* find(std::unordered_map<uint64_t, T*>& map, uint64_t serial) {
  const auto it = map.find(serial);
  return it == map.end() ? nullptr : it->second;
}

// Fails on a handle that is not alive. (Without the address sanitizer `serial` of a freed one is read here; the map still tells.)
template <class T, class Public>
T* checked(std::unordered_map<uint64_t, T*>& map, Public* handle, const char* what) {
  if (handle == nullptr) misuse(std::string(what) + " of a null handle");
  T* object = static_cast<T*>(handle);
  if (find(map, object->serial) != object) misuse(std::string(what) + " of a handle that is not alive");
  return object;
}

// "address" and port (host order) of an IP socket address.
bool split_address(const sockaddr* from, std::string* address, uint16_t* port);
void join_address(const std::string& address, uint16_t port, sockaddr_storage* to);

// fake_nic.cc; the mutex is held.
void nic_install(Device& device);
void nic_enter_error(Fabric& fabric, Qp& qp);
// To ready-to-send, as the library does it when a connection is made: access flags are the kernel's defaults again.
void nic_connect(Fabric& fabric, Qp& qp, uint64_t peer, uint32_t read_depth, uint32_t responder_depth);
void nic_start(Fabric& fabric, Qp& qp);
void post_async(Fabric& fabric, Device& device, ibv_event_type type, uint64_t qp);

inline Qp* queue_pair_of(Id& id) { return id.qp == nullptr ? nullptr : static_cast<Qp*>(id.qp); }

// fake_cm_events.cc; the mutex is held.
void cm_push(Fabric& fabric, Id& id, rdma_cm_event_type type, int status, std::vector<uint8_t> data,
             const rdma_conn_param& conn);
std::vector<Id*> cm_drop_events(Id& id);
void cm_post(Fabric& fabric, Id& id, rdma_cm_event_type type, int status);

// fake_cm.cc; the mutex is held.
void cm_fetched(Fabric& fabric, Id& id, CmEvent& event);
void cm_drop(Fabric& fabric, Id& id);

void fill_verbs_calls(VerbsApi& api);
void fill_cm_calls(VerbsApi& api);
void fill_cm_event_calls(VerbsApi& api);

}  // namespace meshcache::fake
