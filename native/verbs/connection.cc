#include "connection.h"

#include <algorithm>
#include <cerrno>

namespace meshcache {

namespace {

constexpr uint32_t kChainMax = 32;
constexpr uint32_t kChainPiecesMax = 128;

}  // namespace

Connection::Connection(const VerbsApi& api, Rail& rail, uint32_t number, rdma_cm_id* id, uint32_t depth)
    : number(number), rail(rail), id(id), depth(depth), api_(api), requests_(depth), chain_(kChainMax),
      chain_pieces_(kChainPiecesMax) {
  id->context = this;
  for (uint32_t slot = depth; slot > 0; slot--) free_.push_back(slot - 1);
}

Connection::~Connection() {
  destroy_queue_pair();
  api_.destroy_id(id);
}

int Connection::create_queue_pair() {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = rail.cq;
  attributes.recv_cq = rail.cq;
  attributes.cap.max_send_wr = depth;
  attributes.cap.max_send_sge = rail.max_pieces;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_recv_sge = 1;
  if (api_.create_qp(id, rail.pd, &attributes) != 0) return errno == 0 ? EIO : errno;
  has_queue_pair_ = true;
  return 0;
}

void Connection::allow_reads_only() {
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  // A second lock on the door: no memory region allows more either.
  api_.modify_qp(id->qp, &attributes, IBV_QP_ACCESS_FLAGS);
}

bool Connection::chain_is_full() const {
  return chained_ == kChainMax || chained_pieces_ + rail.max_pieces > kChainPiecesMax;
}

bool Connection::carries(const Operation& operation) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const Request& request) {
    return request.is_used && request.operation == &operation;
  });
}

void Connection::chain_read(Operation& operation, uint32_t max_bytes, uint32_t max_pieces, uint32_t device_rkey) {
  ibv_sge* pieces = &chain_pieces_[chained_pieces_];
  const uint64_t remote_addr = operation.remote_addr + operation.requested_bytes;
  uint32_t bytes = 0;
  uint32_t count = 0;
  while (bytes < max_bytes && count < max_pieces && operation.piece < operation.piece_count) {
    const Piece& piece = operation.pieces[operation.piece];
    const auto take = static_cast<uint32_t>(std::min<uint64_t>(piece.length - operation.piece_offset, max_bytes - bytes));
    if (take > 0) {
      pieces[count].addr = piece.addr + operation.piece_offset;
      pieces[count].length = take;
      pieces[count].lkey = operation.regions[operation.piece]->lkey(rail.index);
      count++;
      bytes += take;
      operation.piece_offset += take;
    }
    if (operation.piece_offset == piece.length) {
      operation.piece++;
      operation.piece_offset = 0;
    }
  }
  operation.requested_bytes += bytes;
  operation.pending++;
  chained_pieces_ += count;
  ibv_send_wr& request = next_work_request(add({RequestKind::kRead, &operation, bytes, true}));
  request.sg_list = pieces;
  request.num_sge = static_cast<int>(count);
  request.wr.rdma.remote_addr = remote_addr;
  request.wr.rdma.rkey = device_rkey;
}

void Connection::chain_fetch(RequestKind kind, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
                             uint32_t device_rkey, uint32_t bytes) {
  ibv_sge* piece = &chain_pieces_[chained_pieces_++];
  piece->addr = local_addr;
  piece->length = bytes;
  piece->lkey = lkey;
  ibv_send_wr& request = next_work_request(add({kind, nullptr, bytes, true}));
  request.sg_list = piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = remote_addr;
  request.wr.rdma.rkey = device_rkey;
}

Request Connection::take(uint32_t slot) {
  if (slot >= depth || !requests_[slot].is_used) return {};
  const Request request = requests_[slot];
  requests_[slot] = {};
  free_.push_back(slot);
  in_flight--;
  in_flight_bytes -= request.bytes;
  return request;
}

std::vector<Request> Connection::take_all() {
  std::vector<Request> taken;
  for (uint32_t slot = 0; slot < depth; slot++) {
    if (requests_[slot].is_used) taken.push_back(take(slot));
  }
  return taken;
}

void Connection::begin_drain() {
  const bool was_connected = state == State::kEstablished;
  state = State::kDraining;
  if (!has_queue_pair_) return;
  // Tells the peer, and moves the queue pair to the error state; the second call does so where the first could not.
  if (was_connected) api_.disconnect(id);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  api_.modify_qp(id->qp, &attributes, IBV_QP_STATE);
}

void Connection::destroy_queue_pair() {
  if (!has_queue_pair_) return;
  has_queue_pair_ = false;
  api_.destroy_qp(id);
}

uint32_t Connection::add(Request request) {
  const uint32_t slot = free_.back();
  free_.pop_back();
  requests_[slot] = request;
  in_flight++;
  in_flight_bytes += request.bytes;
  return slot;
}

ibv_send_wr& Connection::next_work_request(uint32_t slot) {
  ibv_send_wr& request = chain_[chained_++];
  request = {};
  request.wr_id = (static_cast<uint64_t>(number) << 32) | slot;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

}  // namespace meshcache
