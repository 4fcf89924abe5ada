#include "rail.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace meshcache {

namespace {

constexpr int kCompletionQueueEntries = 131072;
constexpr int kListenBacklog = 512;
// Scattering over more pieces than this brings nothing: they are several reads then.
constexpr int kMaxPieces = 8;

void make_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

Rail::Rail(const VerbsApi& api, rdma_event_channel* channel, const RailOptions& options, uint32_t index)
    : index(index), device_name(options.device_name), ib_port(options.ib_port), api_(api), channel_(channel) {
  try {
    open(options);
  } catch (...) {
    close();
    throw;
  }
}

Rail::~Rail() { close(); }

bool Rail::arm() { return ibv_req_notify_cq(cq, 0) == 0; }

void Rail::take_completion_events() {
  ibv_cq* from = nullptr;
  void* cq_context = nullptr;
  unsigned count = 0;
  while (api_.get_cq_event(completion_channel, &from, &cq_context) == 0) count++;
  if (count > 0) api_.ack_cq_events(cq, count);
}

void Rail::open(const RailOptions& options) {
  const std::string where = options.address + " port " + std::to_string(options.port);
  address = parse_address(options.address, options.port);
  if (!address.is_valid()) fail("parse_address", EINVAL, "\"" + options.address + "\" is no numeric IP address");
  if (api_.create_id(channel_, &listener, nullptr, RDMA_PS_TCP) != 0) {
    listener = nullptr;
    fail("rdma_create_id", errno, "no connection id to be had");
  }
  if (api_.bind_addr(listener, address.raw()) != 0) fail("rdma_bind_addr", errno, "cannot bind to " + where);
  context = listener->verbs;
  if (context == nullptr) fail("rdma_bind_addr", ENODEV, options.address + " is the address of no RDMA device");
  if (!device_name.empty() && device_name != context->device->name) {
    const std::string other = context->device->name;
    fail("rdma_bind_addr", ENODEV, options.address + " belongs to " + other + ", not to " + device_name);
  }
  device_name = context->device->name;
  ibv_port_attr port{};
  if (int error = api_.query_device(context, &attributes)) fail("ibv_query_device", error, "device attributes");
  if (int error = api_.query_port(context, ib_port, &port)) fail("ibv_query_port", error, "port attributes");
  max_message_bytes = port.max_msg_sz;
  int pieces = attributes.max_sge;
  if (attributes.max_sge_rd > 0) pieces = std::min(pieces, attributes.max_sge_rd);
  max_pieces = static_cast<uint32_t>(std::max(1, std::min(pieces, kMaxPieces)));

  pd = api_.alloc_pd(context);
  if (pd == nullptr) fail("ibv_alloc_pd", errno, "protection domain");
  completion_channel = api_.create_comp_channel(context);
  if (completion_channel == nullptr) fail("ibv_create_comp_channel", errno, "completion channel");
  make_non_blocking(completion_channel->fd);
  make_non_blocking(context->async_fd);
  const int entries = std::min(kCompletionQueueEntries, attributes.max_cqe);
  cq = api_.create_cq(context, entries, nullptr, completion_channel, 0);
  if (cq == nullptr) fail("ibv_create_cq", errno, std::to_string(entries) + " completion queue entries");
  free_entries_ = static_cast<uint32_t>(entries);
  completion_entries = free_entries_;

  if (api_.listen(listener, kListenBacklog) != 0) fail("rdma_listen", errno, "cannot listen on " + where);
  address.set_port(ntohs(api_.get_src_port(listener)));
}

void Rail::close() {
  if (cq != nullptr) api_.destroy_cq(cq);
  if (completion_channel != nullptr) api_.destroy_comp_channel(completion_channel);
  if (pd != nullptr) api_.dealloc_pd(pd);
  // Last: it holds the device open.
  if (listener != nullptr) api_.destroy_id(listener);
}

void Rail::fail(const char* call, int error, const std::string& what) const {
  throw VerbsError(call, error, device_name, std::string(call) + ": " + what + ": " + strerror(error));
}

}  // namespace meshcache
