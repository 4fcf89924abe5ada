// The calls of librdmacm: ids, connection messages between them, and events.
//
//     active                                          passive
//     connect      --- request -->                    CONNECT_REQUEST (a new id)
//                  <-- reply ----                     accept (ready to send)
//     ESTABLISHED (ready to send as it is fetched)
//                  --- ready to use -->               ESTABLISHED
//     disconnect   --- disconnect request -->         DISCONNECTED (its queue pair stays as it is until it disconnects, too)
//     DISCONNECTED <-- disconnect reply ---           disconnect
//     TIMEWAIT_EXIT                                   TIMEWAIT_EXIT
#include <cerrno>

#include "objects.h"

namespace meshcache::fake {

namespace {

// Room for private data in the messages; what arrives is always as long as the room, filled up with zeros.
constexpr size_t kRequestRoom = 56;
constexpr size_t kReplyRoom = 196;
constexpr size_t kRejectRoom = 148;
constexpr int kRejectNoListener = 8;
constexpr int kRejectByConsumer = 28;
constexpr uint32_t kTimewaitUs = 500;

int fail(int errnum) {
  errno = errnum;
  return -1;
}

std::vector<uint8_t> padded(const void* data, uint8_t length, size_t room) {
  std::vector<uint8_t> bytes(room, 0);
  if (length > 0) memcpy(bytes.data(), data, length);
  return bytes;
}

// A message that arrives at `target` unless it is lost, or the target has gone, or a device on the way does not answer.
void send(Fabric& fabric, const Id& from, uint64_t target, std::function<void(Id&)> arrive) {
  if (fabric.chance(fabric.faults.message_loss)) return;
  if (from.device != nullptr && (!from.device->link_up || from.device->removed)) return;
  fabric.after(fabric.below(fabric.faults.network_delay_us_max + 1), [&fabric, target, arrive] {
    Id* id = find(fabric.ids, target);
    if (id != nullptr && id->device != nullptr && id->device->answers()) arrive(*id);
  });
}

void start_timewait(Fabric& fabric, Id& id) {
  if (id.timewait_scheduled) return;
  id.timewait_scheduled = true;
  fabric.after(kTimewaitUs, [&fabric, serial = id.serial] {
    if (Id* live = find(fabric.ids, serial)) cm_post(fabric, *live, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
  });
}

void become_rejected(Fabric& fabric, Id& id, int status, std::vector<uint8_t> data) {
  if (id.state == IdState::kDead || id.state == IdState::kDisconnected) return;
  id.state = IdState::kDead;
  cm_push(fabric, id, RDMA_CM_EVENT_REJECTED, status, std::move(data), {});
}

void send_reject(Fabric& fabric, Id& from, int status, std::vector<uint8_t> data) {
  send(fabric, from, from.peer, [&fabric, status, data](Id& peer) { become_rejected(fabric, peer, status, data); });
}

void send_disconnect(Fabric& fabric, Id& from) {
  send(fabric, from, from.peer, [&fabric](Id& peer) {
    if (peer.state != IdState::kConnected && peer.state != IdState::kReplySent) return;
    peer.state = IdState::kDisconnected;
    cm_post(fabric, peer, RDMA_CM_EVENT_DISCONNECTED, 0);
    start_timewait(fabric, peer);
  });
}

// In the place of the event that was due; true when there was one.
bool odd_instead(Fabric& fabric, Id& id, std::initializer_list<rdma_cm_event_type> types) {
  if (!fabric.chance(fabric.faults.odd_event)) return false;
  const rdma_cm_event_type type = types.begin()[fabric.below(static_cast<uint32_t>(types.size()))];
  id.state = type == RDMA_CM_EVENT_DISCONNECTED ? IdState::kDisconnected : IdState::kDead;
  std::vector<uint8_t> data;
  if (type == RDMA_CM_EVENT_REJECTED) data.assign(kRejectRoom, 0);
  cm_push(fabric, id, type, type == RDMA_CM_EVENT_REJECTED ? kRejectByConsumer : -ETIMEDOUT, data, {});
  return true;
}

int create_id(rdma_event_channel* channel, rdma_cm_id** into, void* context, rdma_port_space space) {
  Call call;
  checked(call.fabric.event_channels, channel, "rdma_create_id with a channel");
  if (call.fabric.fails("create_id")) return -1;
  if (space != RDMA_PS_TCP) misuse("rdma_create_id: only RDMA_PS_TCP");
  auto* id = new Id{};
  id->channel = channel;
  id->context = context;
  id->ps = space;
  id->qp_type = IBV_QPT_RC;
  id->serial = call.fabric.adopt();
  call.fabric.ids[id->serial] = id;
  *into = id;
  return 0;
}

int destroy_id(rdma_cm_id* handle) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_destroy_id");
  if (id->qp != nullptr) misuse("rdma_destroy_id: it has a queue pair");
  if (id->unacked > 0) misuse("rdma_destroy_id hangs: an event was not acknowledged");
  cm_drop(fabric, *id);
  return 0;
}

int bind_to(Fabric& fabric, Id& id, const std::string& address, uint16_t port) {
  Device* device = fabric.device_at(address);
  if (device == nullptr || device->removed) return fail(ENODEV);
  for (auto& [serial, other] : fabric.ids) {
    if (port != 0 && other->device == device && other->port == port && other->listener == 0) return fail(EADDRINUSE);
  }
  id.device = device;
  id.verbs = device;
  id.port_num = 1;
  id.port = port;
  if (port == 0) {
    id.port = fabric.next_port++;
    if (fabric.next_port < 32768) fabric.next_port = 32768;
  }
  join_address(address, id.port, &id.route.addr.src_storage);
  id.state = IdState::kBound;
  return 0;
}

int bind_addr(rdma_cm_id* handle, sockaddr* at) {
  Call call;
  Id* id = checked(call.fabric.ids, handle, "rdma_bind_addr");
  if (call.fabric.fails("bind_addr")) return -1;
  std::string address;
  uint16_t port = 0;
  if (id->state != IdState::kIdle || !split_address(at, &address, &port)) return fail(EINVAL);
  return bind_to(call.fabric, *id, address, port);
}

int listen(rdma_cm_id* handle, int backlog) {
  Call call;
  Id* id = checked(call.fabric.ids, handle, "rdma_listen");
  if (call.fabric.fails("listen")) return -1;
  if (id->state != IdState::kBound) return fail(EINVAL);
  id->state = IdState::kListening;
  id->backlog = backlog > 0 && backlog < 1024 ? backlog : 1024;
  return 0;
}

uint16_t get_src_port(rdma_cm_id* handle) {
  Call call;
  return htons(checked(call.fabric.ids, handle, "rdma_get_src_port")->port);
}

int resolve_addr(rdma_cm_id* handle, sockaddr* source, sockaddr* target, int timeout_ms) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_resolve_addr");
  if (fabric.fails("resolve_addr")) return -1;
  std::string address;
  uint16_t port = 0;
  if (id->state == IdState::kIdle && source != nullptr) {
    if (!split_address(source, &address, &port)) return fail(EINVAL);
    if (bind_to(fabric, *id, address, port) != 0) return -1;
  }
  // Without a source the kernel would choose one by its routes, of which the fake has none.
  if (id->state == IdState::kIdle) misuse("rdma_resolve_addr: an id that is bound to no address");
  if (id->state != IdState::kBound || !split_address(target, &address, &port)) return fail(EINVAL);
  join_address(address, port, &id->route.addr.dst_storage);
  id->state = IdState::kResolvingAddress;
  const Device* there = fabric.device_at(address);
  const bool reachable = there != nullptr && there->link_up && !there->removed && id->device->answers();
  const uint32_t delay_us = reachable ? fabric.below(fabric.faults.network_delay_us_max + 1)
                                      : static_cast<uint32_t>(timeout_ms) * 1000;
  if (reachable && fabric.chance(fabric.faults.message_loss)) return 0;
  fabric.after(delay_us, [&fabric, serial = id->serial, reachable] {
    Id* live = find(fabric.ids, serial);
    if (live == nullptr || live->state != IdState::kResolvingAddress) return;
    if (odd_instead(fabric, *live, {RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_DEVICE_REMOVAL})) return;
    live->state = reachable ? IdState::kAddressResolved : IdState::kBound;
    cm_post(fabric, *live, reachable ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, reachable ? 0 : -ETIMEDOUT);
  });
  return 0;
}

int resolve_route(rdma_cm_id* handle, int) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_resolve_route");
  if (fabric.fails("resolve_route")) return -1;
  if (id->state != IdState::kAddressResolved) return fail(EINVAL);
  id->state = IdState::kResolvingRoute;
  fabric.after(fabric.below(fabric.faults.network_delay_us_max + 1), [&fabric, serial = id->serial] {
    Id* live = find(fabric.ids, serial);
    if (live == nullptr || live->state != IdState::kResolvingRoute) return;
    if (odd_instead(fabric, *live, {RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_DEVICE_REMOVAL})) return;
    live->state = IdState::kRouteResolved;
    cm_post(fabric, *live, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  });
  return 0;
}

int create_qp(rdma_cm_id* handle, ibv_pd* pd_handle, ibv_qp_init_attr* attributes) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_create_qp");
  Pd* pd = checked(fabric.pds, pd_handle, "rdma_create_qp with a protection domain");
  Cq* send = checked(fabric.cqs, attributes->send_cq, "rdma_create_qp with a send queue");
  Cq* receive = checked(fabric.cqs, attributes->recv_cq, "rdma_create_qp with a receive queue");
  if (fabric.fails("create_qp")) return -1;
  if (id->qp != nullptr) misuse("rdma_create_qp: it has one");
  if (id->verbs == nullptr || pd->context != id->verbs || send->context != id->verbs || receive->context != id->verbs) {
    return fail(EINVAL);
  }
  const DeviceSpec& spec = id->device->spec;
  if (attributes->qp_type != IBV_QPT_RC || attributes->cap.max_send_wr > static_cast<uint32_t>(spec.max_qp_wr) ||
      attributes->cap.max_send_sge > static_cast<uint32_t>(spec.max_sge) || id->device->removed) {
    return fail(EINVAL);
  }
  auto* qp = new Qp{};
  qp->context = id->verbs;
  qp->pd = pd;
  qp->send_cq = send;
  qp->recv_cq = receive;
  qp->qp_context = attributes->qp_context;
  qp->qp_type = IBV_QPT_RC;
  qp->state = IBV_QPS_INIT;
  qp->device = id->device;
  qp->cap = attributes->cap;
  qp->signal_all = attributes->sq_sig_all != 0;
  qp->serial = fabric.adopt();
  qp->qp_num = fabric.next_qp_num++ & 0xffffff;
  fabric.qps[qp->serial] = qp;
  id->qp = qp;
  id->pd = pd;
  return 0;
}

void destroy_qp(rdma_cm_id* handle) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_destroy_qp");
  Qp* qp = checked(fabric.qps, id->qp, "rdma_destroy_qp");
  if (qp->async_unacked > 0) misuse("rdma_destroy_qp hangs: an asynchronous event was not acknowledged");
  if (!fabric.faults.stale_completions) {
    auto& entries = static_cast<Cq*>(qp->send_cq)->entries;
    std::deque<Completion> others;
    for (const Completion& completion : entries) {
      if (completion.qp != qp->serial) others.push_back(completion);
    }
    entries = others;
  }
  fabric.qps.erase(qp->serial);
  delete qp;
  id->qp = nullptr;
  fabric.changed();
}

void receive_reply(Fabric& fabric, Id& id, uint64_t passive_qp, const std::vector<uint8_t>& data, const rdma_conn_param& conn) {
  if (id.state != IdState::kRequestSent) return;
  if (odd_instead(fabric, id, {RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED,
                               RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL})) {
    return;
  }
  id.state = IdState::kReplyReceived;
  id.remote_qp = passive_qp;
  cm_push(fabric, id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data, conn);
}

void receive_request(Fabric& fabric, Device& device, uint16_t port, uint64_t active, const std::vector<uint8_t>& data) {
  Id* from = find(fabric.ids, active);
  if (from == nullptr || from->state != IdState::kRequestSent) return;
  Id* listener = nullptr;
  for (auto& [serial, id] : fabric.ids) {
    if (id->state == IdState::kListening && id->device == &device && id->port == port) listener = id;
  }
  if (listener == nullptr || listener->waiting >= static_cast<uint32_t>(listener->backlog)) {
    const int status = listener == nullptr ? kRejectNoListener : kRejectByConsumer;
    return become_rejected(fabric, *from, status, std::vector<uint8_t>(kRejectRoom, 0));
  }
  auto* id = new Id{};
  id->channel = listener->channel;
  id->context = listener->context;
  id->ps = RDMA_PS_TCP;
  id->qp_type = IBV_QPT_RC;
  id->serial = fabric.adopt();
  id->state = IdState::kRequestReceived;
  id->device = &device;
  id->verbs = &device;
  id->port_num = 1;
  id->port = port;
  id->peer = active;
  id->listener = listener->serial;
  id->handed_out = false;
  id->route.addr.src_storage = listener->route.addr.src_storage;
  id->route.addr.dst_storage = from->route.addr.src_storage;
  id->remote_read_depth = from->request.initiator_depth;
  id->remote_responder_depth = from->request.responder_resources;
  fabric.ids[id->serial] = id;
  from->peer = id->serial;
  listener->waiting++;
  rdma_conn_param conn = from->request;
  // Each side sees the other's depths as its own.
  conn.responder_resources = from->request.initiator_depth;
  conn.initiator_depth = from->request.responder_resources;
  conn.qp_num = queue_pair_of(*from) == nullptr ? 0 : from->qp->qp_num;
  cm_push(fabric, *id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, conn);
}

int connect(rdma_cm_id* handle, rdma_conn_param* param) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_connect");
  if (fabric.fails("connect")) return -1;
  if (id->state != IdState::kRouteResolved || param->private_data_len > kRequestRoom) return fail(EINVAL);
  if (id->qp == nullptr) misuse("rdma_connect: without a queue pair of rdma_create_qp");
  const int limit = id->device->spec.max_read_depth;
  auto depth = [limit](uint8_t wanted) { return wanted == RDMA_MAX_INIT_DEPTH ? static_cast<uint8_t>(limit) : wanted; };
  id->request = *param;
  id->request.initiator_depth = depth(param->initiator_depth);
  id->request.responder_resources = depth(param->responder_resources);
  id->request.private_data = nullptr;
  if (id->request.initiator_depth > limit || id->request.responder_resources > limit) return fail(EINVAL);
  std::string address;
  uint16_t port = 0;
  split_address(&id->route.addr.dst_addr, &address, &port);
  id->state = IdState::kRequestSent;
  // A request that is lost is the caller's to give up: the kernel tries for more than a minute.
  if (fabric.chance(fabric.faults.message_loss)) return 0;
  const std::vector<uint8_t> data = padded(param->private_data, param->private_data_len, kRequestRoom);
  fabric.after(fabric.below(fabric.faults.network_delay_us_max + 1), [&fabric, address, port, active = id->serial, data] {
    Device* device = fabric.device_at(address);
    if (device != nullptr && device->answers()) receive_request(fabric, *device, port, active, data);
  });
  return 0;
}

int accept(rdma_cm_id* handle, rdma_conn_param* param) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_accept");
  if (fabric.fails("accept")) return -1;
  if (param->private_data_len > kReplyRoom || id->listener == 0) return fail(EINVAL);
  if (id->state != IdState::kRequestReceived) return fail(EINVAL);  // it was withdrawn
  Qp* qp = queue_pair_of(*id);
  if (qp == nullptr) misuse("rdma_accept: without a queue pair of rdma_create_qp");
  const auto limit = static_cast<uint32_t>(id->device->spec.max_read_depth);
  auto depth = [limit](uint8_t wanted, uint32_t offered) {
    return wanted == RDMA_MAX_INIT_DEPTH ? std::min(limit, offered) : wanted;
  };
  const uint32_t read_depth = depth(param->initiator_depth, id->remote_responder_depth);
  const uint32_t responder_depth = depth(param->responder_resources, id->remote_read_depth);
  if (read_depth > limit || responder_depth > limit) return fail(EINVAL);
  Id* active = find(fabric.ids, id->peer);
  Qp* active_qp = active == nullptr ? nullptr : queue_pair_of(*active);
  nic_connect(fabric, *qp, active_qp == nullptr ? 0 : active_qp->serial, read_depth, responder_depth);
  id->state = IdState::kReplySent;
  rdma_conn_param conn{};
  conn.responder_resources = static_cast<uint8_t>(read_depth);
  conn.initiator_depth = static_cast<uint8_t>(responder_depth);
  conn.rnr_retry_count = param->rnr_retry_count;
  conn.qp_num = qp->qp_num;
  const std::vector<uint8_t> data = padded(param->private_data, param->private_data_len, kReplyRoom);
  send(fabric, *id, id->peer,
       [&fabric, serial = qp->serial, data, conn](Id& peer) { receive_reply(fabric, peer, serial, data, conn); });
  return 0;
}

int reject(rdma_cm_id* handle, const void* data, uint8_t length) {
  Call call;
  Id* id = checked(call.fabric.ids, handle, "rdma_reject");
  if (call.fabric.fails("reject")) return -1;
  if (length > kRejectRoom || id->state != IdState::kRequestReceived) return fail(EINVAL);
  id->state = IdState::kDead;
  send_reject(call.fabric, *id, kRejectByConsumer, padded(data, length, kRejectRoom));
  return 0;
}

int disconnect(rdma_cm_id* handle) {
  Call call;
  Fabric& fabric = call.fabric;
  Id* id = checked(fabric.ids, handle, "rdma_disconnect");
  if (fabric.fails_planned("disconnect")) return -1;
  if (id->device == nullptr) return fail(EINVAL);
  if (Qp* qp = queue_pair_of(*id); qp != nullptr && qp->hardware != IBV_QPS_ERR) {
    qp->state = IBV_QPS_ERR;
    nic_enter_error(fabric, *qp);
  }
  if (id->state != IdState::kConnected && id->state != IdState::kReplySent) {
    if (id->state == IdState::kDisconnected) start_timewait(fabric, *id);
    return 0;
  }
  id->state = IdState::kDisconnected;
  send_disconnect(fabric, *id);
  fabric.after(fabric.below(fabric.faults.network_delay_us_max + 1), [&fabric, serial = id->serial] {
    Id* live = find(fabric.ids, serial);
    if (live == nullptr) return;
    cm_post(fabric, *live, RDMA_CM_EVENT_DISCONNECTED, 0);
    start_timewait(fabric, *live);
  });
  return 0;
}

int set_option(rdma_cm_id* handle, int level, int, void* value, size_t length) {
  Call call;
  checked(call.fabric.ids, handle, "rdma_set_option");
  if (call.fabric.fails_planned("set_option")) return -1;
  if (level != RDMA_OPTION_ID || value == nullptr || length == 0 || length > 4) return fail(EINVAL);
  return 0;
}

}  // namespace

// What the library does as an event is fetched.
void cm_fetched(Fabric& fabric, Id& id, CmEvent& event) {
  id.handed_out = true;
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) static_cast<Id*>(event.listen_id)->waiting--;
  if (event.event == RDMA_CM_EVENT_REJECTED) {
    if (Qp* qp = queue_pair_of(id); qp != nullptr && qp->hardware != IBV_QPS_ERR) {
      qp->state = IBV_QPS_ERR;
      nic_enter_error(fabric, *qp);
    }
  }
  if (event.event != RDMA_CM_EVENT_CONNECT_RESPONSE) return;
  Qp* qp = queue_pair_of(id);
  if (qp == nullptr || id.state != IdState::kReplyReceived) {
    event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.status = -EINVAL;
    return;
  }
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  nic_connect(fabric, *qp, id.remote_qp, std::min<uint32_t>(id.request.initiator_depth, event.param.conn.initiator_depth),
              id.request.responder_resources);
  id.state = IdState::kConnected;
  send(fabric, id, id.peer, [&fabric](Id& peer) {
    if (peer.state != IdState::kReplySent) return;
    if (odd_instead(fabric, peer, {RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_DISCONNECTED})) return;
    peer.state = IdState::kConnected;
    cm_post(fabric, peer, RDMA_CM_EVENT_ESTABLISHED, 0);
  });
}

// Tells the other end whatever fits the state, and forgets the id with its events that were not fetched.
void cm_drop(Fabric& fabric, Id& id) {
  const std::vector<uint8_t> nothing(kRejectRoom, 0);
  switch (id.state) {
    case IdState::kRequestSent:
    case IdState::kRequestReceived:
    case IdState::kReplyReceived:
    case IdState::kReplySent:  // the peer may be connected by now
      send_reject(fabric, id, kRejectByConsumer, nothing);
      break;
    case IdState::kConnected:
      send_disconnect(fabric, id);
      break;
    default:
      break;
  }
  const std::vector<Id*> never_fetched = cm_drop_events(id);
  fabric.ids.erase(id.serial);
  for (Id* each : never_fetched) cm_drop(fabric, *each);
  delete &id;
}

void fill_cm_calls(VerbsApi& api) {
  api.create_id = create_id;
  api.destroy_id = destroy_id;
  api.bind_addr = bind_addr;
  api.listen = listen;
  api.get_src_port = get_src_port;
  api.resolve_addr = resolve_addr;
  api.resolve_route = resolve_route;
  api.create_qp = create_qp;
  api.destroy_qp = destroy_qp;
  api.connect = connect;
  api.accept = accept;
  api.reject = reject;
  api.disconnect = disconnect;
  api.set_option = set_option;
}

}  // namespace meshcache::fake
