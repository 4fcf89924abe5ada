// The poller's part on connections: what rdma_cm tells, and what is answered.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "poller.h"

namespace meshcache {

namespace {

constexpr uint64_t kMillisecond = 1000000;
// An accepted connection posts nothing but probes.
constexpr uint32_t kAcceptedDepth = 2;
// What a probe reads of the peer's region table.
constexpr uint32_t kProbeBytes = 16;
// A packet is sent again after 4.096 us * 2^16 = 268 ms without an answer, seven times.
constexpr uint8_t kAckTimeout = 16;
constexpr uint8_t kRetryCount = 7;
// rdma_cm's word for a request that nobody listens for.
constexpr int kStatusNoListener = 8;
// Reads in flight in one direction of a connection; rdma_cm takes a byte for it.
constexpr int kReadsInFlightMax = 254;

uint8_t reads_in_flight(int device_limit) {
  return static_cast<uint8_t>(std::max(1, std::min(device_limit, kReadsInFlightMax)));
}

bool is_link_local(const Address& address) {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

// Of a refusal that a peer has sent.
EventCause cause_of(uint16_t reason) {
  switch (static_cast<Refusal>(reason)) {
    case Refusal::kSecret: return EventCause::kRefusedSecret;
    case Refusal::kVersion: return EventCause::kRefusedVersion;
    case Refusal::kTooMany: return EventCause::kRefusedTooMany;
    case Refusal::kClosing: return EventCause::kRefusedClosing;
  }
  return EventCause::kRefused;
}

}  // namespace

EngineEvent Engine::Impl::event_of(EventKind kind, const Connection& connection, const char* call, int error,
                                   EventCause cause) const {
  EngineEvent event{};
  event.kind = kind;
  event.cause = cause;
  event.device = connection.rail.device_name;
  event.peer = connection.peer == nullptr ? "" : connection.peer->name;
  event.call = call;
  event.errnum = error;
  return event;
}

Connection& Engine::Impl::adopt(rdma_cm_id* id, Rail& rail, uint32_t depth) {
  const uint32_t number = next_connection_++;
  auto connection = std::make_unique<Connection>(api_, rail, number, id, depth);
  connection->deadline = now_ + options_.connect_timeout_ms * kMillisecond;
  Connection& adopted = *connection;
  connections_.emplace(number, std::move(connection));
  return adopted;
}

Connection* Engine::Impl::connect(Peer& peer, uint32_t rail_index, Address address) {
  if (is_closing_) return nullptr;
  Rail& rail = *rails_[rail_index];
  EngineEvent failure{};
  failure.kind = EventKind::kConnectFailed;
  failure.cause = EventCause::kSystemError;
  failure.device = rail.device_name;
  failure.peer = peer.name;
  rdma_cm_id* id = nullptr;
  const auto fail = [&](const char* call) -> Connection* {
    failure.call = call;
    failure.errnum = errno;
    if (id != nullptr) api_.destroy_id(id);
    reporter_.event(std::move(failure));
    return nullptr;
  };
  if (api_.create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) {
    id = nullptr;
    return fail("rdma_create_id");
  }
  // The request for a connection carries it, and the peer answers with the same.
  if (options_.dscp >= 0) {
    auto traffic_class = static_cast<uint8_t>(options_.dscp << 2);
    if (api_.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class, sizeof traffic_class) != 0) {
      return fail("rdma_set_option");
    }
  }
  uint8_t timeout = kAckTimeout;
  api_.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  Address source = rail.address;
  source.set_port(0);
  // The scope of a link-local address is this host's, not the peer's.
  if (is_link_local(address) && is_link_local(source)) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_scope_id =
        reinterpret_cast<const sockaddr_in6*>(&source.storage)->sin6_scope_id;
  }
  if (api_.resolve_addr(id, source.raw(), address.raw(), static_cast<int>(options_.connect_timeout_ms)) != 0) {
    return fail("rdma_resolve_addr");
  }
  const uint32_t device_limit = static_cast<uint32_t>(std::max(1, rail.attributes.max_qp_wr));
  Connection& connection = adopt(id, rail, std::min(options_.queue_depth, device_limit));
  connection.peer = &peer;
  return &connection;
}

void Engine::Impl::look_up(Peer& peer) {
  // A thread of its own, which nobody waits for: a name server may take half a minute.
  const auto look = [lookups = lookups_, this_peer = &peer, host = peer.host, port = peer.port] {
    const Address address = resolve_address(host, port);
    std::lock_guard<std::mutex> lock(lookups->mutex);
    if (lookups->engine != nullptr) lookups->engine->looked_up(*this_peer, address);
  };
  try {
    std::thread(look).detach();
  } catch (const std::system_error&) {
    looked_up(peer, Address{});
  }
}

void Engine::Impl::looked_up(Peer& peer, const Address& address) {
  post([this, &peer, address] {
      if (!address.is_valid()) {
        EngineEvent event{};
        event.kind = EventKind::kConnectFailed;
        event.cause = EventCause::kNoAddress;
        event.peer = peer.name;
        event.call = "getaddrinfo";
        reporter_.event(std::move(event));
      }
      peer.named(address);
      mark(peer);
  });
}

// Every reader has to connect again, and to read the region table again.
void Engine::Impl::disconnect_readers() {
  for (Connection* connection : all_connections()) {
    if (connection->peer == nullptr) drain(*connection, OpStatus::kConnectionLost, false, std::nullopt);
  }
}

void Engine::Impl::handle(const ConnectionEvent& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return requested(event);
  // Destroyed by an event before this one, or the listener.
  auto* const at = static_cast<Connection*>(event.id->context);
  if (at == nullptr) return;
  Connection& connection = *at;
  if (connection.state == Connection::State::kDraining) return;
  const std::string name = api_.event_str(event.type);
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (connection.state == Connection::State::kResolvingAddress) address_resolved(connection);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (connection.state == Connection::State::kResolvingRoute) route_resolved(connection);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (connection.state != Connection::State::kEstablished) established(connection, event);
      return;
    case RDMA_CM_EVENT_REJECTED: {
      // Cut off before the peer knew that it was established.
      if (connection.state == Connection::State::kEstablished) break;
      RefusalData data{};
      const bool is_ours = decode(event.private_data, data) && data.magic == kRefusalMagic;
      const bool is_deaf = !is_ours && event.status == kStatusNoListener;
      const EventCause cause = is_ours   ? cause_of(data.reason)
                               : is_deaf ? EventCause::kNobodyListens
                                         : EventCause::kRefused;
      const bool is_refusal = is_ours && data.reason != static_cast<uint16_t>(Refusal::kClosing);
      return connecting_failed(connection, is_refusal ? OpStatus::kRejected : OpStatus::kUnreachable,
                               event_of(is_refusal ? EventKind::kRejected : EventKind::kConnectFailed, connection,
                                        "rdma_connect", is_deaf ? ECONNREFUSED : EACCES, cause),
                               !is_ours && !is_deaf);
    }
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:  // the peer's answer came, and could not be used any more
    case RDMA_CM_EVENT_UNREACHABLE:
      if (connection.state == Connection::State::kEstablished) break;
      return connecting_failed(connection, OpStatus::kUnreachable,
                               event_of(EventKind::kConnectFailed, connection, name.c_str(),
                                        event.status < 0 ? -event.status : event.status, EventCause::kUnreachable),
                               event.type == RDMA_CM_EVENT_CONNECT_ERROR);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_DISCONNECTED:
      break;
    default:
      return;
  }
  if (connection.state != Connection::State::kEstablished) {
    return connecting_failed(connection, OpStatus::kUnreachable,
                             event_of(EventKind::kConnectFailed, connection, name.c_str(), ECONNRESET, EventCause::kWentAway),
                             event.type == RDMA_CM_EVENT_DISCONNECTED);
  }
  // It may be there still: it does so when it withdraws memory. When it is not, connecting says so at once.
  drain(connection, OpStatus::kConnectionLost, true,
        event_of(EventKind::kConnectionLost, connection, name.c_str(), ECONNRESET, EventCause::kClosedByPeer));
}

void Engine::Impl::requested(const ConnectionEvent& event) {
  Rail* rail = nullptr;
  for (const auto& each : rails_) {
    if (each->listener == event.listen_id) rail = each.get();
  }
  RequestData request{};
  const bool is_known = decode(event.private_data, request) && request.magic == kRequestMagic;
  if (rail == nullptr || is_closing_) return refuse(event.id, Refusal::kClosing);
  if (!is_known || request.version != kHandshakeVersion) {
    reporter_.counters.protocol_errors++;
    return refuse(event.id, Refusal::kVersion);
  }
  bool is_trusted = options_.tokens.empty();
  for (const Token& token : options_.tokens) {
    is_trusted |= request.has_token != 0 && same_token(token.request, request.token);
  }
  if (!is_trusted) return refuse(event.id, Refusal::kSecret);
  // Half of the completion queue is for reading: peers that connect must not keep this engine from it.
  const uint32_t accepted_limit = std::min(options_.accepted_max_count, rail->completion_entries / 2 / (kAcceptedDepth + 1));
  const bool has_room = accepted_count_ < accepted_limit && rail->reserve(kAcceptedDepth + 1);
  if (!has_room) return refuse(event.id, Refusal::kTooMany);
  accept(event, *rail, request);
}

void Engine::Impl::accept(const ConnectionEvent& event, Rail& rail, const RequestData& request) {
  Connection& connection = adopt(event.id, rail, kAcceptedDepth);
  accepted_count_++;
  connection.has_reserved = true;
  connection.state = Connection::State::kAccepting;
  connection.remote_table_addr = request.table_addr;
  connection.remote_table_rkey = request.table_rkey;
  const char* call = "rdma_create_qp";
  int error = connection.create_queue_pair();
  if (error == 0) {
    ReplyData reply{};
    reply.magic = kReplyMagic;
    reply.version = kHandshakeVersion;
    for (const Token& token : options_.tokens) {
      if (!same_token(token.request, request.token)) continue;
      reply.has_token = 1;
      memcpy(reply.token, token.reply, kTokenBytes);
    }
    reply.table_addr = registrations_->table_addr();
    reply.table_rkey = registrations_->table_device_rkey(rail.index);
    reply.rail = rail.index;
    reply.engine_id = engine_id_;
    rdma_conn_param parameters{};
    parameters.private_data = &reply;
    parameters.private_data_len = sizeof reply;
    parameters.responder_resources =
        std::min<uint8_t>(event.responder_resources, reads_in_flight(rail.attributes.max_qp_rd_atom));
    parameters.initiator_depth =
        std::min<uint8_t>(event.initiator_depth, reads_in_flight(rail.attributes.max_qp_init_rd_atom));
    parameters.rnr_retry_count = kRetryCount;
    call = "rdma_accept";
    if (api_.accept(event.id, &parameters) != 0) error = errno;
  }
  if (error == 0) return;
  EngineEvent failure = event_of(EventKind::kDeviceError, connection, call, error, EventCause::kSystemError);
  drain(connection, OpStatus::kDeviceError, false, std::nullopt);
  reporter_.event(std::move(failure));
}

void Engine::Impl::refuse(rdma_cm_id* id, Refusal reason) {
  const RefusalData data{kRefusalMagic, kHandshakeVersion, static_cast<uint16_t>(reason)};
  EngineEvent event{};
  event.kind = EventKind::kRejectedPeer;
  event.cause = reason == Refusal::kSecret    ? EventCause::kWrongSecret
                : reason == Refusal::kVersion ? EventCause::kUnknownProtocol
                                              : EventCause::kTooManyConnections;
  event.call = "rdma_reject";
  Address peer;
  memcpy(&peer.storage, &id->route.addr.dst_storage, sizeof peer.storage);
  event.peer = format_address(peer);
  api_.reject(id, &data, sizeof data);
  api_.destroy_id(id);
  if (reason == Refusal::kClosing) return;
  reporter_.counters.refused_connections++;
  reporter_.event(std::move(event));
}

void Engine::Impl::address_resolved(Connection& connection) {
  if (connection.id->verbs != connection.rail.context) {
    return connecting_failed(connection, OpStatus::kUnreachable,
                             event_of(EventKind::kConnectFailed, connection, "rdma_resolve_addr", EXDEV,
                                      EventCause::kOtherDevice));
  }
  connection.state = Connection::State::kResolvingRoute;
  if (api_.resolve_route(connection.id, static_cast<int>(options_.connect_timeout_ms)) == 0) return;
  const int error = errno;
  connecting_failed(connection, OpStatus::kUnreachable,
                    event_of(EventKind::kConnectFailed, connection, "rdma_resolve_route", error, EventCause::kSystemError));
}

void Engine::Impl::route_resolved(Connection& connection) {
  connection.state = Connection::State::kConnecting;
  if (!connection.rail.reserve(connection.depth + 1)) {
    return connecting_failed(connection, OpStatus::kDeviceError,
                             event_of(EventKind::kConnectFailed, connection, "ibv_create_cq", ENOSPC,
                                      EventCause::kCompletionQueueFull));
  }
  connection.has_reserved = true;
  const char* call = "rdma_create_qp";
  int error = connection.create_queue_pair();
  if (error == 0) {
    RequestData request{};
    request.magic = kRequestMagic;
    request.version = kHandshakeVersion;
    if (!options_.tokens.empty()) {
      request.has_token = 1;
      memcpy(request.token, options_.tokens.front().request, kTokenBytes);
    }
    request.table_addr = registrations_->table_addr();
    request.table_rkey = registrations_->table_device_rkey(connection.rail.index);
    rdma_conn_param parameters{};
    parameters.private_data = &request;
    parameters.private_data_len = sizeof request;
    parameters.initiator_depth = reads_in_flight(connection.rail.attributes.max_qp_init_rd_atom);
    parameters.responder_resources = 1;  // the peer's probes
    parameters.retry_count = kRetryCount;
    parameters.rnr_retry_count = kRetryCount;
    call = "rdma_connect";
    if (api_.connect(connection.id, &parameters) != 0) error = errno;
  }
  if (error == 0) return;
  connecting_failed(connection, OpStatus::kDeviceError,
                    event_of(EventKind::kConnectFailed, connection, call, error, EventCause::kSystemError));
}

void Engine::Impl::established(Connection& connection, const ConnectionEvent& event) {
  if (connection.peer != nullptr) {
    ReplyData reply{};
    const bool is_known = decode(event.private_data, reply) && reply.magic == kReplyMagic &&
                          reply.version == kHandshakeVersion && reply.rail < kMaxRails;
    const bool is_trusted = options_.tokens.empty() ||
                            (reply.has_token != 0 && same_token(options_.tokens.front().reply, reply.token));
    if (!is_known || !is_trusted) {
      reporter_.counters.protocol_errors += is_known ? 0 : 1;
      const EventCause cause = is_known ? EventCause::kWrongSecret : EventCause::kUnknownProtocol;
      return connecting_failed(connection, OpStatus::kRejected,
                               event_of(EventKind::kRejected, connection, "rdma_connect", EPROTO, cause));
    }
    connection.remote_table_addr = reply.table_addr;
    connection.remote_table_rkey = reply.table_rkey;
    connection.remote_rail = reply.rail;
    connection.remote_engine_id = reply.engine_id;
    if (!connection.peer->connected(connection)) {
      return connecting_failed(connection, OpStatus::kUnreachable,
                               event_of(EventKind::kConnectFailed, connection, "rdma_connect", ESTALE, EventCause::kOtherEngine));
    }
  }
  connection.state = Connection::State::kEstablished;
  connection.last_progress = now_;
  connection.allow_reads_only();
  if (connection.peer == nullptr) {
    reporter_.counters.accepted_connections++;
    return;
  }
  reporter_.counters.connections++;
  mark(*connection.peer);
}

// It was never established, and will not be.
void Engine::Impl::connecting_failed(Connection& connection, OpStatus reason, EngineEvent event, bool has_answered) {
  Peer* const peer = connection.peer;
  connection.drain_reason = reason;
  connection.deadline = now_;
  connection.begin_drain();
  draining_.push_back(&connection);
  if (peer == nullptr) return;
  reporter_.event(std::move(event));
  peer->connect_failed(connection, reason, has_answered);
  mark(*peer);
}

// Asks for a sign of life by reading a few bytes of the peer's region table; an error ends the connection.
void Engine::Impl::probe(Connection& connection) {
  connection.last_progress = now_;
  if (!connection.has_room()) return;
  connection.chain_fetch(RequestKind::kProbe, reinterpret_cast<uint64_t>(scratch(kProbeScratch)),
                         scratch_lkey(kProbeScratch, connection.rail.index), connection.remote_table_addr,
                         connection.remote_table_rkey, kProbeBytes);
  const int error = connection.flush([](const Request&) {});
  if (error != 0) post_failed(connection, error, false);
}

void Engine::Impl::table_is_bad(Peer& peer) {
  reporter_.counters.protocol_errors++;
  EngineEvent event{};
  event.kind = EventKind::kRejected;
  event.cause = EventCause::kNoRegionTable;
  event.peer = peer.name;
  event.call = "region table";
  reporter_.event(std::move(event));
}

void Engine::Impl::count_connected(bool again) {
  reporter_.counters.connects++;
  if (again) reporter_.counters.reconnects++;
}

}  // namespace meshcache
