#include "fabric.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "objects.h"

namespace meshcache::fake {

namespace {
Fabric* current_fabric = nullptr;
}

void misuse(const std::string& what) {
  fprintf(stderr, "\nfake verbs: %s\n", what.c_str());
  fflush(stderr);
  abort();
}

bool Signal::non_blocking() const { return (fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0; }

Fabric::Fabric(uint64_t seed) : random(seed) {
  if (current_fabric != nullptr) misuse("two fabrics at a time");
  current_fabric = this;
  thread_ = std::thread([this] { run(); });
}

Fabric::~Fabric() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  current_fabric = nullptr;
}

Fabric& Fabric::current() {
  if (current_fabric == nullptr) misuse("a call after the fabric has gone");
  return *current_fabric;
}

const VerbsApi& Fabric::api() {
  static const VerbsApi table = [] {
    VerbsApi filled{};
    fill_verbs_calls(filled);
    fill_cm_calls(filled);
    fill_cm_event_calls(filled);
    return filled;
  }();
  return table;
}

void Fabric::run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!ending_) {
    if (tasks_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const Clock::time_point due = tasks_.begin()->first;
    if (Clock::now() < due) {
      wake_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    task();
    // Others may have the mutex between any two steps of the devices.
    lock.unlock();
    lock.lock();
  }
}

void Fabric::run_due() {
  if (!faults.inline_nic || running_due_) return;
  running_due_ = true;
  while (!tasks_.empty() && tasks_.begin()->first <= Clock::now()) {
    const std::function<void()> task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    task();
  }
  running_due_ = false;
}

void Fabric::after(uint32_t delay_us, std::function<void()> task) {
  const bool immediate = delay_us == 0 && faults.inline_nic;
  const Clock::time_point due = Clock::now() + std::chrono::microseconds(delay_us);
  const auto place = tasks_.emplace(due, std::move(task));
  if (!immediate && place == tasks_.begin()) wake_.notify_one();
}

bool Fabric::fails_planned(const char* name) {
  calls_[name]++;
  const auto planned = planned_.find(name);
  if (planned != planned_.end()) {
    PlannedFailure& plan = planned->second;
    if (plan.after > 0) {
      plan.after--;
    } else {
      errno = plan.errnum;
      if (--plan.count == 0) planned_.erase(planned);
      return true;
    }
  }
  return false;
}

bool Fabric::fails(const char* name) {
  if (fails_planned(name)) return true;
  if (!chance(faults.call_failure)) return false;
  static const int errors[] = {ENOMEM, ENODEV, EMFILE, EAGAIN};
  errno = errors[below(4)];
  return true;
}

bool Fabric::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random) < probability;
}

uint32_t Fabric::below(uint32_t limit) { return limit == 0 ? 0 : static_cast<uint32_t>(random() % limit); }

uint64_t Fabric::adopt() { return ++serial_; }

void Fabric::add_device(const DeviceSpec& spec) {
  std::lock_guard<std::mutex> lock(mutex);
  auto device = std::make_unique<Device>();
  device->spec = spec;
  snprintf(device->identity.name, sizeof device->identity.name, "%s", spec.name.c_str());
  device->identity.node_type = IBV_NODE_CA;
  device->identity.transport_type = IBV_TRANSPORT_IB;
  device->device = &device->identity;
  device->async_fd = device->signal.fd();
  device->cmd_fd = -1;
  device->num_comp_vectors = 2;
  nic_install(*device);
  if (!devices.emplace(spec.address, std::move(device)).second) misuse("two devices at " + spec.address);
}

Device* Fabric::device_at(const std::string& address) {
  const auto it = devices.find(address);
  return it == devices.end() ? nullptr : it->second.get();
}

Device* Fabric::device_named(const std::string& name) {
  for (auto& [address, device] : devices) {
    if (device->spec.name == name) return device.get();
  }
  misuse("no device " + name);
}

void Fabric::set_faults(const Faults& changed_faults) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    faults = changed_faults;
  }
  wake_.notify_one();
}

void Fabric::fail_call(const std::string& name, int errnum, uint32_t after_count, uint32_t count) {
  std::lock_guard<std::mutex> lock(mutex);
  planned_[name] = {errnum, after_count, count};
}

void Fabric::fail_completion(ibv_wc_status status, uint32_t after_count) {
  std::lock_guard<std::mutex> lock(mutex);
  planned_status = status;
  planned_after = after_count;
}

void Fabric::set_link(const std::string& name, bool up) {
  std::lock_guard<std::mutex> lock(mutex);
  Device& device = *device_named(name);
  if (device.link_up == up) return;
  device.link_up = up;
  post_async(*this, device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 0);
}

void Fabric::set_stalled(const std::string& name, bool stalled) {
  std::lock_guard<std::mutex> lock(mutex);
  device_named(name)->stalled = stalled;
}

void Fabric::set_paused(const std::string& name, bool paused) {
  std::lock_guard<std::mutex> lock(mutex);
  Device& device = *device_named(name);
  device.paused = paused;
  if (paused) return;
  for (auto& [serial, qp] : qps) {
    if (qp->device == &device) nic_start(*this, *qp);
  }
}

void Fabric::remove_device(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  Device& device = *device_named(name);
  device.removed = true;
  post_async(*this, device, IBV_EVENT_DEVICE_FATAL, 0);
  for (auto& [serial, id] : ids) {
    if (id->device == &device && id->handed_out) cm_post(*this, *id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
  }
}

void Fabric::inject_async(const std::string& name, ibv_event_type type) {
  std::lock_guard<std::mutex> lock(mutex);
  Device& device = *device_named(name);
  if (type != IBV_EVENT_QP_FATAL) return post_async(*this, device, type, 0);
  for (auto& [serial, qp] : qps) {
    if (qp->device != &device || qp->hardware != IBV_QPS_RTS) continue;
    post_async(*this, device, type, serial);
    nic_enter_error(*this, *qp);
  }
}

void Fabric::disconnect_all(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  Device* device = device_named(name);
  for (auto& [serial, id] : ids) {
    if (id->state != IdState::kConnected && id->state != IdState::kReplySent) continue;
    Id* peer = find(ids, id->peer);
    if (id->device == device || (peer != nullptr && peer->device == device)) {
      id->state = IdState::kDisconnected;
      cm_post(*this, *id, RDMA_CM_EVENT_DISCONNECTED, 0);
    }
  }
}

void Fabric::inject_cm(const std::string& name, rdma_cm_event_type type, int status) {
  std::lock_guard<std::mutex> lock(mutex);
  Device* device = device_named(name);
  for (auto& [serial, id] : ids) {
    if (id->device == device && id->handed_out && id->state > IdState::kListening) cm_post(*this, *id, type, status);
  }
}

uint64_t Fabric::calls(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  return calls_[name];
}

uint64_t Fabric::read_bytes(const std::string& device) {
  std::lock_guard<std::mutex> lock(mutex);
  return device_named(device)->read_bytes;
}

uint64_t Fabric::work_requests(const std::string& device) {
  std::lock_guard<std::mutex> lock(mutex);
  return device_named(device)->work_requests;
}

uint64_t Fabric::live(const std::string& kind) {
  std::lock_guard<std::mutex> lock(mutex);
  if (kind == "pd") return pds.size();
  if (kind == "mr") return mrs.size();
  if (kind == "comp_channel") return comp_channels.size();
  if (kind == "cq") return cqs.size();
  if (kind == "qp") return qps.size();
  if (kind == "event_channel") return event_channels.size();
  if (kind == "id") return ids.size();
  misuse("no kind " + kind);
}

uint64_t Fabric::writable_queue_pairs() {
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t count = 0;
  for (auto& [serial, qp] : qps) {
    if (qp->hardware == IBV_QPS_RTS && (qp->access & ~static_cast<unsigned>(IBV_ACCESS_REMOTE_READ)) != 0) count++;
  }
  return count;
}

bool Fabric::wait(const std::function<bool(Fabric&)>& done, uint32_t timeout_ms) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!done(*this)) {
    if (Clock::now() >= deadline) return false;
    std::unique_lock<std::mutex> lock(mutex);
    // Not everything that `done` may look at announces itself.
    changed_.wait_for(lock, std::chrono::milliseconds(5));
  }
  return true;
}

std::string Fabric::leaks() {
  std::string left;
  for (const char* kind : {"pd", "mr", "comp_channel", "cq", "qp", "event_channel", "id"}) {
    const uint64_t count = live(kind);
    if (count > 0) left += "  " + std::to_string(count) + " " + kind + "\n";
  }
  return left;
}

bool split_address(const sockaddr* from, std::string* address, uint16_t* port) {
  char text[INET6_ADDRSTRLEN];
  if (from->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(from);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    *port = ntohs(v4->sin_port);
  } else if (from->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(from);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    *port = ntohs(v6->sin6_port);
  } else {
    return false;
  }
  *address = text;
  return true;
}

void join_address(const std::string& address, uint16_t port, sockaddr_storage* to) {
  memset(to, 0, sizeof *to);
  auto* v4 = reinterpret_cast<sockaddr_in*>(to);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(to);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
  } else {
    misuse("not an address: " + address);
  }
}

}  // namespace meshcache::fake
