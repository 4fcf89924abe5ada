// The devices of the fake: posting, execution, completion and flushing of work requests.
//
// A queue pair executes its requests in order, one at a time. After the first bad completion, or when software moves it
// to the error state, every further request is flushed, after a while during which its bytes may still land.
#include <algorithm>
#include <cerrno>

#include "objects.h"

namespace meshcache::fake {

namespace {

// For a look at one that must not be used: what a bad completion says beside its status means nothing.
constexpr auto kMeaningless = static_cast<ibv_wc_opcode>(0x6e);

void push_completion(Fabric&, Cq& cq, const Completion& completion) {
  if (cq.entries.size() >= static_cast<size_t>(cq.cqe)) misuse("completion queue overrun");
  cq.entries.push_back(completion);
  if (!cq.armed) return;
  cq.armed = false;
  if (cq.channel == nullptr) return;
  auto* channel = static_cast<CompChannel*>(cq.channel);
  channel->events.push_back(&cq);
  channel->signal.raise();
}

void complete_front(Fabric& fabric, Qp& qp, ibv_wc_status status) {
  const WorkRequest& request = qp.queue.front();
  qp.slots_pending++;
  if (status != IBV_WC_SUCCESS || request.signaled) {
    Completion completion{};
    completion.wc.wr_id = request.wr_id;
    completion.wc.status = status;
    completion.wc.qp_num = qp.qp_num;
    if (status == IBV_WC_SUCCESS) {
      completion.wc.opcode = request.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
      completion.wc.byte_len = static_cast<uint32_t>(request.bytes);
    } else {
      completion.wc.opcode = kMeaningless;
      completion.wc.byte_len = 0xdeadbeef;
      completion.wc.vendor_err = 0x77;
    }
    completion.qp = qp.serial;
    completion.slots = qp.slots_pending;
    qp.slots_pending = 0;
    push_completion(fabric, *static_cast<Cq*>(qp.send_cq), completion);
  }
  qp.queue.pop_front();
}

const Mr* local_region(Fabric& fabric, const Qp& qp, const ibv_sge& piece) {
  const auto it = fabric.mrs_by_key.find(piece.lkey);
  if (it == fabric.mrs_by_key.end() || it->second->pd != qp.pd) return nullptr;
  const auto start = reinterpret_cast<uint64_t>(it->second->addr);
  if (piece.addr < start || piece.addr + piece.length > start + it->second->length) return nullptr;
  return it->second;
}

bool local_ok(Fabric& fabric, const Qp& qp, const WorkRequest& request) {
  for (const ibv_sge& piece : request.sges) {
    if (piece.length == 0) continue;
    const Mr* region = local_region(fabric, qp, piece);
    if (region == nullptr) return false;
    if (request.opcode == IBV_WR_RDMA_READ && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
  }
  return true;
}

bool remote_ok(Fabric& fabric, const Qp& peer, const WorkRequest& request) {
  const unsigned wanted = request.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if ((peer.access & wanted) == 0) return false;
  if (request.bytes == 0) return true;
  const auto it = fabric.mrs_by_key.find(~request.rkey);
  if (it == fabric.mrs_by_key.end() || it->second->pd != peer.pd) return false;
  const auto start = reinterpret_cast<uint64_t>(it->second->addr);
  const uint64_t end = start + it->second->length;
  if (request.remote_addr < start || request.remote_addr > end || end - request.remote_addr < request.bytes) return false;
  return (static_cast<unsigned>(it->second->access) & wanted) != 0;
}

// As a device reads: while the owner may be writing. (Region tables are read so, on purpose.) Volatile, so that no memcpy is
// made of it, which the thread sanitizer would watch.
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread))
#endif
void take_unsynchronized(uint8_t* into, uint64_t from, uint64_t bytes) {
  const volatile auto* words = reinterpret_cast<const volatile uint64_t*>(from);
  uint64_t done = 0;
  if (from % 8 == 0) {
    for (; done + 8 <= bytes; done += 8) {
      const uint64_t word = words[done / 8];
      __builtin_memcpy(into + done, &word, 8);
    }
  }
  const volatile auto* rest = reinterpret_cast<const volatile uint8_t*>(from);
  for (; done < bytes; done++) into[done] = rest[done];
}

// Lands the first `limit` bytes.
void land(const WorkRequest& request, uint64_t limit) {
  static std::vector<uint8_t> wire;  // guarded by the fabric's mutex
  wire.resize(std::min(limit, request.bytes));
  take_unsynchronized(wire.data(), request.remote_addr, wire.size());
  const uint8_t* from = wire.data();
  limit = wire.size();
  for (const ibv_sge& piece : request.sges) {
    const uint64_t take = std::min<uint64_t>(piece.length, limit);
    memcpy(reinterpret_cast<void*>(piece.addr), from, take);
    from += take;
    limit -= take;
  }
}

// A read that its device has begun may leave bytes at any time until it is completed, whatever its outcome.
void land_early(Fabric& fabric, Qp& qp) {
  if (!fabric.chance(fabric.faults.torn_read) || qp.queue.empty() || qp.device->removed) return;
  const Qp* peer = find(fabric.qps, qp.peer);
  const auto depth = std::min<size_t>(qp.queue.size(), std::max(1u, qp.read_depth));
  const WorkRequest& request = qp.queue[fabric.below(static_cast<uint32_t>(depth))];
  if (peer == nullptr || request.opcode != IBV_WR_RDMA_READ || request.bytes == 0) return;
  if (local_ok(fabric, qp, request) && remote_ok(fabric, *peer, request)) {
    land(request, 1 + fabric.below(static_cast<uint32_t>(request.bytes)));
  }
}

void flush(Fabric& fabric, Qp& qp) {
  if (qp.flush_scheduled || qp.stuck || qp.device->removed) return;
  qp.flush_scheduled = true;
  fabric.after(fabric.below(fabric.faults.flush_delay_us_max + 1), [&fabric, serial = qp.serial] {
    Qp* live = find(fabric.qps, serial);
    if (live == nullptr) return;
    live->flush_scheduled = false;
    if (live->device->removed) return;
    land_early(fabric, *live);
    while (!live->queue.empty()) complete_front(fabric, *live, IBV_WC_WR_FLUSH_ERR);
  });
}

void fail_front(Fabric& fabric, Qp& qp, ibv_wc_status status) {
  complete_front(fabric, qp, status);
  nic_enter_error(fabric, qp);
}

// -1: none is to be injected.
int injected_status(Fabric& fabric) {
  if (fabric.planned_status >= 0) {
    if (fabric.planned_after > 0) {
      fabric.planned_after--;
    } else {
      const int status = fabric.planned_status;
      fabric.planned_status = -1;
      return status;
    }
  }
  if (!fabric.chance(fabric.faults.completion_error)) return -1;
  return 1 + static_cast<int>(fabric.below(IBV_WC_GENERAL_ERR));
}

void execute(Fabric& fabric, uint64_t serial, uint64_t sequence, bool is_retry) {
  Qp* qp = find(fabric.qps, serial);
  if (qp == nullptr || qp->hardware != IBV_QPS_RTS || qp->queue.empty()) return;
  const WorkRequest& request = qp->queue.front();
  if (request.sequence != sequence || qp->device->removed) return;
  qp->executing = 0;
  if (qp->device->paused) return;
  if (const int status = injected_status(fabric); status >= 0) {
    land_early(fabric, *qp);
    return fail_front(fabric, *qp, static_cast<ibv_wc_status>(status));
  }
  if (!local_ok(fabric, *qp, request)) return fail_front(fabric, *qp, IBV_WC_LOC_PROT_ERR);
  if (request.bytes > qp->device->spec.max_message_bytes) return fail_front(fabric, *qp, IBV_WC_LOC_LEN_ERR);
  if (request.opcode == IBV_WR_RDMA_READ && qp->read_depth == 0) return fail_front(fabric, *qp, IBV_WC_LOC_QP_OP_ERR);

  Qp* peer = find(fabric.qps, qp->peer);
  const bool answers = peer != nullptr && peer->peer == qp->serial && peer->device->answers() && qp->device->answers() &&
                       (peer->hardware == IBV_QPS_RTS || peer->hardware == IBV_QPS_RTR);
  if (!answers) {
    if (is_retry) return fail_front(fabric, *qp, IBV_WC_RETRY_EXC_ERR);
    qp->executing = 1 + sequence;
    return fabric.after(fabric.faults.retry_us, [&fabric, serial, sequence] { execute(fabric, serial, sequence, true); });
  }
  if (request.opcode == IBV_WR_RDMA_READ && peer->responder_depth < std::min<size_t>(qp->read_depth, qp->queue.size())) {
    return fail_front(fabric, *qp, IBV_WC_REM_INV_REQ_ERR);
  }
  if (!remote_ok(fabric, *peer, request)) {
    post_async(fabric, *peer->device, IBV_EVENT_QP_ACCESS_ERR, peer->serial);
    nic_enter_error(fabric, *peer);
    return fail_front(fabric, *qp, IBV_WC_REM_ACCESS_ERR);
  }
  if (request.opcode == IBV_WR_RDMA_READ) {
    land(request, request.bytes);
    qp->device->read_bytes += request.bytes;
  } else if (request.bytes > 0) {
    misuse("a write to a peer");
  }
  complete_front(fabric, *qp, IBV_WC_SUCCESS);
  nic_start(fabric, *qp);
}

// 0, or an errno.
int accept_request(Fabric& fabric, Qp& qp, const ibv_send_wr& from) {
  if (qp.hardware != IBV_QPS_RTS && qp.hardware != IBV_QPS_ERR) return EINVAL;
  if (qp.device->removed) return EIO;
  if (qp.slots_used >= qp.cap.max_send_wr) return ENOMEM;
  if (from.num_sge < 0 || static_cast<uint32_t>(from.num_sge) > qp.cap.max_send_sge) return EINVAL;
  if (from.opcode != IBV_WR_RDMA_READ && from.opcode != IBV_WR_RDMA_WRITE) misuse("an opcode that the fake does not know");
  if (from.opcode == IBV_WR_RDMA_READ && (from.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
  WorkRequest request{};
  request.sequence = qp.next_sequence++;
  request.wr_id = from.wr_id;
  request.opcode = from.opcode;
  request.signaled = qp.signal_all || (from.send_flags & IBV_SEND_SIGNALED) != 0;
  request.remote_addr = from.wr.rdma.remote_addr;
  request.rkey = from.wr.rdma.rkey;
  for (int i = 0; i < from.num_sge; i++) {
    request.sges.push_back(from.sg_list[i]);
    request.bytes += from.sg_list[i].length;
  }
  qp.queue.push_back(std::move(request));
  qp.slots_used++;
  qp.device->work_requests++;
  if (qp.hardware == IBV_QPS_ERR) flush(fabric, qp);
  return 0;
}

int post_send(ibv_qp* handle, ibv_send_wr* request, ibv_send_wr** bad) {
  Call call;
  Qp* qp = checked(call.fabric.qps, handle, "ibv_post_send");
  for (; request != nullptr; request = request->next) {
    int error = 0;
    if (call.fabric.chance(call.fabric.faults.post_failure)) {
      error = call.fabric.chance(0.5) ? ENOMEM : EIO;
    } else if (call.fabric.fails_planned("post_send")) {
      error = errno;
    } else {
      error = accept_request(call.fabric, *qp, *request);
    }
    if (error != 0) {
      *bad = request;
      nic_start(call.fabric, *qp);
      return error;
    }
  }
  nic_start(call.fabric, *qp);
  return 0;
}

int post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { misuse("ibv_post_recv: nothing is ever sent here"); }

int poll_cq(ibv_cq* handle, int limit, ibv_wc* into) {
  Call call;
  Cq* cq = checked(call.fabric.cqs, handle, "ibv_poll_cq");
  int count = 0;
  for (; count < limit && !cq->entries.empty(); count++) {
    const Completion completion = cq->entries.front();
    cq->entries.pop_front();
    into[count] = completion.wc;
    if (Qp* qp = find(call.fabric.qps, completion.qp)) qp->slots_used -= completion.slots;
  }
  return count;
}

// What is in the queue already makes no event: poll again after arming.
int req_notify_cq(ibv_cq* handle, int solicited_only) {
  Call call;
  if (solicited_only != 0) misuse("ibv_req_notify_cq: reads are never solicited, nothing would wake");
  if (call.fabric.fails_planned("req_notify_cq")) return errno;
  checked(call.fabric.cqs, handle, "ibv_req_notify_cq")->armed = true;
  return 0;
}

}  // namespace

void nic_install(Device& device) {
  device.ops.post_send = post_send;
  device.ops.post_recv = post_recv;
  device.ops.poll_cq = poll_cq;
  device.ops.req_notify_cq = req_notify_cq;
}

void nic_connect(Fabric& fabric, Qp& qp, uint64_t peer, uint32_t read_depth, uint32_t responder_depth) {
  qp.peer = peer;
  qp.read_depth = read_depth;
  qp.responder_depth = responder_depth;
  qp.access = IBV_ACCESS_REMOTE_WRITE;
  if (responder_depth > 0) qp.access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  qp.hardware = IBV_QPS_RTS;
  qp.state = IBV_QPS_RTS;
  qp.stuck = fabric.chance(fabric.faults.stuck_queue_pair);
  if (!fabric.chance(fabric.faults.async_event)) return;
  const ibv_event_type types[] = {IBV_EVENT_COMM_EST, IBV_EVENT_QP_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE,
                                  IBV_EVENT_GID_CHANGE, IBV_EVENT_PATH_MIG_ERR};
  const ibv_event_type type = types[fabric.below(6)];
  fabric.after(fabric.below(3000), [&fabric, serial = qp.serial, type] {
    Qp* live = find(fabric.qps, serial);
    if (live == nullptr) return;
    const bool of_queue_pair = type == IBV_EVENT_COMM_EST || type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_PATH_MIG_ERR;
    post_async(fabric, *live->device, type, of_queue_pair ? serial : 0);
    if (type == IBV_EVENT_QP_FATAL) nic_enter_error(fabric, *live);
  });
}

void nic_start(Fabric& fabric, Qp& qp) {
  if (qp.hardware != IBV_QPS_RTS || qp.queue.empty() || qp.stuck || qp.device->paused || qp.device->removed) return;
  const uint64_t sequence = qp.queue.front().sequence;
  if (qp.executing == 1 + sequence) return;
  qp.executing = 1 + sequence;
  land_early(fabric, qp);
  fabric.after(fabric.below(fabric.faults.nic_delay_us_max + 1),
               [&fabric, serial = qp.serial, sequence] { execute(fabric, serial, sequence, false); });
}

void nic_enter_error(Fabric& fabric, Qp& qp) {
  qp.hardware = IBV_QPS_ERR;
  flush(fabric, qp);
}

void post_async(Fabric& fabric, Device& device, ibv_event_type type, uint64_t qp) {
  device.async_events.push_back({type, qp});
  device.signal.raise();
  fabric.changed();
}

}  // namespace meshcache::fake
