// The fake itself: that it behaves as the libraries do, and that it catches who misuses them. A client of a few calls
// stands in for the engine.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <arpa/inet.h>
#include <cstring>

#include "check.h"
#include "fabric.h"
#include "node.h"

namespace meshcache::tests {

namespace {

using fake::Fabric;
using fake::Faults;

constexpr size_t kBytes = 4096;
constexpr uint32_t kDepth = 4;

sockaddr_in at(const char* address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  inet_pton(AF_INET, address, &result.sin_addr);
  return result;
}

// One end of one connection; every call must succeed.
struct End {
  explicit End(const VerbsApi& verbs) : api(verbs), channel(verbs.create_event_channel()) {
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    CHECK_EQ(api.create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  }

  // Of the device that the id is bound to.
  void open(size_t bytes) {
    memory.assign(bytes, Target::kGuard);
    pd = api.alloc_pd(id->verbs);
    completions = api.create_comp_channel(id->verbs);
    fcntl(completions->fd, F_SETFL, O_NONBLOCK);
    cq = api.create_cq(id->verbs, 16, nullptr, completions, 0);
    mr = api.reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = cq;
    attributes.recv_cq = cq;
    attributes.cap.max_send_wr = kDepth;
    attributes.cap.max_send_sge = 1;
    CHECK_EQ(api.create_qp(id, pd, &attributes), 0);
  }

  // Acknowledges the next event, which must be of that type.
  std::vector<uint8_t> event(rdma_cm_event_type type, rdma_cm_id** subject = nullptr) {
    rdma_cm_event* event = nullptr;
    CHECK(Fabric::current().wait([&](Fabric&) { return api.get_cm_event(channel, &event) == 0; }, 5000));
    const rdma_cm_event_type found = event->event;
    std::vector<uint8_t> data(event->param.conn.private_data_len);
    if (!data.empty()) memcpy(data.data(), event->param.conn.private_data, data.size());
    if (subject != nullptr) *subject = event->id;
    api.ack_cm_event(event);
    CHECK_EQ(std::string(api.event_str(found)), std::string(api.event_str(type)));
    return data;
  }

  int post(uint64_t wr_id, uint64_t remote_addr, uint32_t rkey, uint32_t bytes = 64) {
    ibv_sge piece{reinterpret_cast<uint64_t>(memory.data()) + wr_id * 64, bytes, mr->lkey};
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = remote_addr;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id->qp, &request, &bad);
  }

  ibv_wc completion() {
    ibv_wc wc{};
    CHECK(Fabric::current().wait([&](Fabric&) { return ibv_poll_cq(cq, 1, &wc) == 1; }, 5000));
    return wc;
  }

  void close() {
    if (id != nullptr && id->qp != nullptr) api.destroy_qp(id);
    if (mr != nullptr) api.dereg_mr(mr);
    if (cq != nullptr) api.destroy_cq(cq);
    if (completions != nullptr) api.destroy_comp_channel(completions);
    if (pd != nullptr) api.dealloc_pd(pd);
    if (id != nullptr) api.destroy_id(id);
    if (listener != nullptr) api.destroy_id(listener);
    api.destroy_event_channel(channel);
  }

  const VerbsApi& api;
  rdma_event_channel* channel;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* completions = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory;
};

struct Connected {
  Connected(uint64_t seed, const Faults& faults, bool is_accepted = true)
      : fabric(seed), active(Fabric::api()), passive(Fabric::api()) {
    fabric.add_device({"a", "10.0.0.1"});
    fabric.add_device({"b", "10.0.0.2"});
    fabric.set_faults(faults);
    const VerbsApi& api = Fabric::api();
    sockaddr_in here = at("10.0.0.1", 0);
    sockaddr_in there = at("10.0.0.2", 99);
    passive.listener = passive.id;
    CHECK_EQ(api.bind_addr(passive.listener, reinterpret_cast<sockaddr*>(&there)), 0);
    CHECK_EQ(api.listen(passive.listener, 4), 0);
    CHECK_EQ(api.resolve_addr(active.id, reinterpret_cast<sockaddr*>(&here), reinterpret_cast<sockaddr*>(&there), 1000), 0);
    active.event(RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQ(api.resolve_route(active.id, 1000), 0);
    active.event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    active.open(kBytes);
    rdma_conn_param parameters{};
    parameters.private_data = "hello";
    parameters.private_data_len = 5;
    parameters.initiator_depth = kDepth;
    parameters.responder_resources = 1;
    CHECK_EQ(api.connect(active.id, &parameters), 0);
    request_data = passive.event(RDMA_CM_EVENT_CONNECT_REQUEST, &passive.id);
    if (!is_accepted) return;
    passive.open(kBytes);
    parameters.private_data = "welcome";
    parameters.private_data_len = 7;
    parameters.initiator_depth = 1;
    parameters.responder_resources = kDepth;
    CHECK_EQ(api.accept(passive.id, &parameters), 0);
    reply_data = active.event(RDMA_CM_EVENT_ESTABLISHED);
    passive.event(RDMA_CM_EVENT_ESTABLISHED);
    for (size_t i = 0; i < kBytes; i++) passive.memory[i] = content(seed, i);
  }

  uint64_t remote(size_t offset = 0) const { return reinterpret_cast<uint64_t>(passive.memory.data()) + offset; }

  void end() {
    active.close();
    passive.close();
    check_clean(fabric);
  }

  Fabric fabric;
  End active;
  End passive;
  std::vector<uint8_t> request_data;
  std::vector<uint8_t> reply_data;
};

#if !defined(__SANITIZE_THREAD__)
// What the code says as it ends the process; empty: it does not. (The thread sanitizer does not take forks.)
std::string last_words(const std::function<void()>& code) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    try {
      code();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char part[4096];
  for (ssize_t length; (length = read(ends[0], part, sizeof part)) > 0;) words.append(part, length);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : "";
}
#endif

}  // namespace

TEST(fake_private_data, "fake: private data arrives as long as its room, filled up with zeros") {
  Connected pair(seed, {});
  CHECK_EQ(pair.request_data.size(), 56u);
  CHECK_EQ(memcmp(pair.request_data.data(), "hello\0\0", 7), 0);
  CHECK_EQ(pair.reply_data.size(), 196u);
  CHECK_EQ(memcmp(pair.reply_data.data(), "welcome\0", 8), 0);
  pair.end();
}

TEST(fake_reject, "fake: a rejection brings its private data; withdrawn requests cannot be accepted") {
  {
    Connected pair(seed, {}, false);
    CHECK_EQ(pair.passive.api.reject(pair.passive.id, "no", 2), 0);
    const std::vector<uint8_t> data = pair.active.event(RDMA_CM_EVENT_REJECTED);
    CHECK_EQ(data.size(), 148u);
    CHECK_EQ(memcmp(data.data(), "no\0", 3), 0);
    pair.end();
  }
  Connected pair(seed, {}, false);
  pair.active.close();
  pair.passive.event(RDMA_CM_EVENT_REJECTED);
  pair.passive.open(kBytes);
  rdma_conn_param parameters{};
  CHECK_EQ(pair.passive.api.accept(pair.passive.id, &parameters), -1);
  pair.passive.close();
  check_clean(pair.fabric);
}

TEST(fake_read, "fake: reads complete in order; a full send queue refuses more until completions are polled") {
  Connected pair(seed, {});
  for (uint64_t i = 0; i < kDepth; i++) CHECK_EQ(pair.active.post(i, pair.remote(i * 64), pair.passive.mr->rkey), 0);
  CHECK_EQ(pair.active.post(9, pair.remote(), pair.passive.mr->rkey), ENOMEM);
  for (uint64_t i = 0; i < kDepth; i++) {
    const ibv_wc wc = pair.active.completion();
    CHECK_EQ(wc.wr_id, i);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.active.memory[i * 64 + 63], content(seed, i * 64 + 63));
  }
  CHECK_EQ(pair.active.post(9, pair.remote(), pair.passive.mr->rkey), 0);
  CHECK_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  pair.end();
}

TEST(fake_denied, "fake: a wrong rkey or range is denied, the rest flushed, on both sides the queue pair is in error") {
  for (const int fault : {0, 1, 2}) {
    Connected pair(seed, {});
    pair.fabric.set_paused("a", true);
    const uint32_t rkey = pair.passive.mr->rkey + (fault == 0 ? 1 : 0);
    const uint64_t addr = pair.remote() + (fault == 1 ? kBytes - 63 : fault == 2 ? -1 : 0);
    CHECK_EQ(pair.active.post(0, addr, rkey), 0);
    CHECK_EQ(pair.active.post(1, pair.remote(), pair.passive.mr->rkey), 0);
    pair.fabric.set_paused("a", false);
    CHECK_EQ(pair.active.completion().status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(pair.active.post(2, pair.remote(), pair.passive.mr->rkey), 0);
    CHECK_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(pair.passive.post(0, 0, 0), 0);
    CHECK_EQ(pair.passive.completion().status, IBV_WC_WR_FLUSH_ERR);
    for (uint8_t byte : pair.active.memory) CHECK_EQ(byte, Target::kGuard);
    pair.end();
  }
}

TEST(fake_gone, "fake: a peer without its queue pair exceeds the retries; one that disconnects is announced") {
  Connected pair(seed, {});
  pair.passive.api.destroy_qp(pair.passive.id);
  CHECK_EQ(pair.active.post(0, pair.remote(), pair.passive.mr->rkey), 0);
  CHECK_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
  CHECK_EQ(pair.passive.api.disconnect(pair.passive.id), 0);
  pair.active.event(RDMA_CM_EVENT_DISCONNECTED);
  pair.passive.event(RDMA_CM_EVENT_DISCONNECTED);
  pair.active.event(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  pair.end();
}

TEST(fake_arming, "fake: only what completes after arming makes an event, and one for each arming") {
  Connected pair(seed, {});
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  const auto read = [&] {
    CHECK_EQ(pair.active.post(0, pair.remote(), pair.passive.mr->rkey), 0);
    CHECK_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  };
  read();
  CHECK_EQ(ibv_req_notify_cq(pair.active.cq, 0), 0);
  CHECK_EQ(pair.active.api.get_cq_event(pair.active.completions, &cq, &context), -1);
  read();
  read();
  CHECK_EQ(pair.active.api.get_cq_event(pair.active.completions, &cq, &context), 0);
  pair.active.api.ack_cq_events(cq, 1);
  CHECK_EQ(pair.active.api.get_cq_event(pair.active.completions, &cq, &context), -1);
  pair.end();
}

// What the engine must wait for, and what the tests of it would not see without: the proof that early reports are caught.
TEST(fake_late_bytes, "fake: bytes land after a queue pair is in error, until the flushed completion, and never after") {
  Faults faults;
  faults.torn_read = 1;
  faults.flush_delay_us_max = 20000;
  bool has_landed = false;
  for (uint64_t i = 0; i < 20 && !has_landed; i++) {
    Connected pair(seed + i, faults);
    pair.fabric.set_paused("a", true);
    CHECK_EQ(pair.active.post(0, pair.remote(), pair.passive.mr->rkey), 0);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    CHECK_EQ(pair.active.api.modify_qp(pair.active.id->qp, &attributes, IBV_QP_STATE), 0);
    CHECK_EQ(pair.active.memory[0], Target::kGuard);
    CHECK_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
    has_landed = pair.active.memory[0] != Target::kGuard;
    pair.end();
  }
  CHECK(has_landed);
}

#if !defined(__SANITIZE_THREAD__)
TEST(fake_misuse, "fake: what makes the libraries hang or fail ends the process") {
  struct Misuse {
    const char* words;
    std::function<void(Connected&)> commit;
  };
  const Misuse misuses[] = {
      {"rdma_destroy_id: it has a queue pair", [](Connected& pair) { pair.active.api.destroy_id(pair.active.id); }},
      {"ibv_dealloc_pd: it has", [](Connected& pair) { pair.active.api.dealloc_pd(pair.active.pd); }},
      {"ibv_destroy_cq: a queue pair uses it", [](Connected& pair) { pair.active.api.destroy_cq(pair.active.cq); }},
      {"rdma_destroy_event_channel: an id", [](Connected& pair) { pair.active.api.destroy_event_channel(pair.active.channel); }},
      {"peers may read and nothing else", [](Connected& pair) {
        pair.active.api.reg_mr(pair.active.pd, &pair, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
      }},
      {"a work request that has not completed uses it", [](Connected& pair) {
        pair.fabric.set_paused("a", true);
        pair.active.post(0, pair.remote(), pair.passive.mr->rkey);
        pair.active.api.dereg_mr(pair.active.mr);
      }},
      {"rdma_destroy_id hangs", [](Connected& pair) {
        pair.active.api.disconnect(pair.active.id);
        rdma_cm_event* event = nullptr;
        pair.fabric.wait([&](Fabric&) { return pair.active.api.get_cm_event(pair.active.channel, &event) == 0; }, 5000);
        pair.active.api.destroy_qp(pair.active.id);
        pair.active.api.destroy_id(pair.active.id);  // the event is not acknowledged
      }},
      {"completion queue overrun", [](Connected& pair) {
        for (int i = 0; i < 20; i++) {  // its completion queue has 16 places
          ibv_qp_attr attributes{};
          attributes.qp_state = IBV_QPS_ERR;
          pair.active.api.modify_qp(pair.active.id->qp, &attributes, IBV_QP_STATE);
          for (uint64_t each = 0; each < kDepth; each++) pair.active.post(each, 0, 0);
          pair.fabric.wait([](Fabric&) { return false; }, 10);
          pair.active.api.destroy_qp(pair.active.id);
          ibv_qp_init_attr again{};
          again.qp_type = IBV_QPT_RC;
          again.send_cq = again.recv_cq = pair.active.cq;
          again.cap.max_send_wr = kDepth;
          again.cap.max_send_sge = 1;
          pair.active.api.create_qp(pair.active.id, pair.active.pd, &again);
        }
      }},
  };
  for (const Misuse& misuse : misuses) {
    const std::string words = last_words([&] {
      Faults faults;
      faults.stale_completions = true;
      Connected pair(seed, faults);
      misuse.commit(pair);
      pair.fabric.wait([](Fabric&) { return false; }, 20);
    });
    if (words.find(misuse.words) == std::string::npos) {
      check_failed(__FILE__, __LINE__, std::string("not caught: ") + misuse.words + "; said was: " + words);
    }
  }
}
#endif

}  // namespace meshcache::tests
